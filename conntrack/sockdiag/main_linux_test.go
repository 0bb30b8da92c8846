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
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// childEnv makes the test binary look once, print what it saw and end.
const childEnv = "CONNDRAIN_TEST_LOOK"

// barred is childEnv's value for a child that may not open a netlink socket.
const barred = "without netlink"

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
	if os.Getenv(childEnv) == barred {
		if err := barNetlink(); err != nil {
			return fmt.Errorf("bar netlink: %w", err)
		}
	}
	l, err := TakeTraffic(context.Background())
	if err != nil {
		return err
	}
	rights, err := capabilities()
	if err != nil {
		return err
	}
	for i := range l.Traffic {
		if l.Traffic[i].Known != (l.Source == SockDiag) {
			return fmt.Errorf("traffic from %s: %+v", l.Source, l.Traffic[i])
		}
	}
	fmt.Printf("uid %d, capabilities %s, %s\n%s", os.Getuid(), rights, l.Source, describe(l))
	return nil
}

// barNetlink refuses netlink sockets to this process, as a filter of system calls of
// a container's runtime does.
func barNetlink() error {
	const argument = 16 // of struct seccomp_data: the first one
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SOCKET, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: argument},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.AF_NETLINK, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
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
func lookAsNobody(how string) (string, error) {
	// The test binary lies in a folder of root's alone; this link leads there.
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{childEnv + "=" + how}
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
