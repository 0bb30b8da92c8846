package demo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
)

// childEnv makes the test binary a program with the command, or one that starts
// it where user namespaces are forbidden.
const childEnv = "DEMO_TEST_CHILD"

// nobody is a user without any rights.
const nobody = 65534

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "demo":
		os.Exit(program())
	case "jail":
		os.Exit(jail())
	}
	goleak.VerifyTestMain(m)
}

// program is a command line with nothing but the demo.
func program() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{Use: "conndrain", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(Command())
	err := root.ExecuteContext(ctx)
	if exit, ok := errors.AsType[ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// jail forbids user namespaces inside of the one that it is in and runs the demo
// as nobody.
func jail() int {
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 100
	}
	cmd := exec.Command("/proc/self/exe", "demo")
	cmd.Env = append(os.Environ(), childEnv+"=demo")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if err := cmd.Run(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode()
		}
		fmt.Fprintln(os.Stderr, err)
		return 101
	}
	return 0
}

// demo is a running demo, in a session of its own so that what it leaves behind
// can be found.
type demo struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

// newDemo prepares a demo as root or as another user.
func newDemo(t *testing.T, uid uint32, args ...string) *demo {
	t.Helper()
	d := &demo{Cmd: exec.CommandContext(t.Context(), "/proc/self/exe", append([]string{"demo"}, args...)...)}
	d.Env = append(os.Environ(), childEnv+"=demo")
	d.Stdout, d.Stderr = &d.stdout, &d.stderr
	d.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if uid != 0 {
		d.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	return d
}

// running are the processes of the demo's session that are still there.
func (d *demo) running(t *testing.T) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		_, rest, ok := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); ok && f[0] != "Z" && f[3] == strconv.Itoa(d.Process.Pid) {
			found = append(found, string(b))
		}
	}
	return found
}

// mustBeGone fails where anything of the demo is left, after a moment for the
// kernel. Its namespaces have no name and nobody else who could hold them, so they
// are gone with the last process.
func (d *demo) mustBeGone(t *testing.T) {
	t.Helper()
	limit := time.After(60 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left := d.running(t)
		if len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still running:\n%s", strings.Join(left, ""))
		}
	}
}

// startUntil starts the demo and returns when it has told a line that has the
// text. What follows is read by the time the demo has ended.
func (d *demo) startUntil(t *testing.T, text string) (wait func() error) {
	t.Helper()
	d.Stdout = nil
	out, err := d.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return func() error {
				for lines.Scan() {
				}
				return d.Wait()
			}
		}
	}
	t.Fatalf("the demo ended before it said %q: %v\n%s", text, d.Wait(), d.stderr.String())
	return nil
}
