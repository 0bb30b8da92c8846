package sockdiag

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes the test binary look once, print what it saw and end.
const childEnv = "CONNDRAIN_TEST_LOOK"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func child() error {
	l, err := Take(context.Background())
	if err != nil {
		return err
	}
	rights, err := capabilities()
	if err != nil {
		return err
	}
	fmt.Printf("uid %d, capabilities %s\n%s", os.Getuid(), rights, describe(l))
	return nil
}

// capabilities are those of this process, as the kernel prints them.
func capabilities() (string, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", errors.New("no CapEff in /proc/self/status")
}

// describe returns what does not change between two looks while nothing
// happens, one line for each counted socket.
func describe(l Look) string {
	var lines []string
	for _, s := range l.Counted(Scope{}) {
		lines = append(lines, fmt.Sprintf("%s %s %s %d\n", s.Local, s.Peer, s.State, s.Inode))
	}
	slices.Sort(lines)
	return fmt.Sprintf("listening %v, own %v\n%s", l.Listening, l.Own, strings.Join(lines, ""))
}

// lookAsNobody describes a look that a process without any right takes, in the
// network namespace of the calling thread.
func lookAsNobody() (string, error) {
	// The test binary lies in a folder of root's alone; this link leads there.
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{childEnv + "=1"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 65534, Gid: 65534},
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return string(out), err
}
