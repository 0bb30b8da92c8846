//go:build linux

package netlab

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childEnv makes the test binary one of the child processes of these tests.
const childEnv = "NETLAB_TEST_CHILD"

func TestMain(m *testing.M) {
	GuardTable()
	children := map[string]func() error{
		"namespace": printNamespace,
		"lab":       connectAndHang,
		"hold":      raiseAndHang,
		"new":       tryNew,
	}
	if f, ok := children[os.Getenv(childEnv)]; ok {
		if err := f(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child prepares one of the child processes; it is killed at the test's end.
func child(t *testing.T, name string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(append(os.Environ(), env...), childEnv+"="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// startChild starts a child and waits until it says "ready".
func startChild(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			return
		}
		t.Logf("child: %s", lines.Text())
	}
	t.Fatalf("child ended: %v", cmd.Wait())
}

// kill ends a child as SIGKILL does and collects it.
func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// eventually polls a condition for as long as a slow machine may need.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(60 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still not after a minute: %s", what)
		}
	}
}

func newNamespace(t *testing.T) *Namespace {
	t.Helper()
	n, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func newLab(t *testing.T, o LabOptions) *Lab {
	t.Helper()
	l, err := NewLab(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// own is the namespace that this process or the caller's thread is in.
func own(t *testing.T) *Namespace {
	t.Helper()
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	n := &Namespace{file: f}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustSysctl(t *testing.T, n *Namespace, name string) string {
	t.Helper()
	v, err := n.ReadSysctl(name)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
