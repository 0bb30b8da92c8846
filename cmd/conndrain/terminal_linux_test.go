package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// newTerminal returns a terminal of 80 x 24 for a process, and what is written to
// it.
func newTerminal(t *testing.T) (*os.File, *output) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	screen := &output{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil {
				return // EIO: the last process has closed the terminal
			}
			_, _ = screen.Write(b[:n])
		}
	}()
	t.Cleanup(func() {
		_ = tty.Close()
		<-done
		_ = master.Close()
	})
	return tty, screen
}

// TestWaitOnATerminal has one line that renews, and the sentence alone at the
// end.
func TestWaitOnATerminal(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	c := dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)
	tty, screen := newTerminal(t)

	p := start(t, lab.Node, func(cmd *exec.Cmd) error {
		cmd.Stdout, cmd.Stderr = tty, tty
		cmd.Env = append(os.Environ(), "TERM=xterm")
		return nil
	}, "wait", "--address", lab.PodAddr.String())
	waitFor(t, "the session on the screen, and again with less time left", func() bool {
		return strings.Count(screen.String(), "s left: 1 open, 0 idle, 0 lost, 0 new at 10.244.1.7") >= 2
	})
	closeNow(t, c)
	p.exit(t, 0)
	waitFor(t, "the sentence", func() bool { return strings.HasSuffix(screen.String(), "\n") })
	if s := screen.String(); strings.Count(s, "\n") != 1 {
		t.Errorf("more than one line is left on the screen: %q", s)
	}
	if !screen.has(eraseLine + "Drained: the last session of 10.244.1.7 ended") {
		t.Errorf("the sentence does not take the line's place: %q", screen)
	}
}

// TestSessionsWatchOnATerminal renews a table in place.
func TestSessionsWatchOnATerminal(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	tty, screen := newTerminal(t)

	p := start(t, lab.Node, func(cmd *exec.Cmd) error {
		cmd.Stdout = tty
		cmd.Env = append(os.Environ(), "TERM=xterm")
		return nil
	}, "sessions", "--address", lab.PodAddr.String(), "--watch")
	waitFor(t, "an empty screen", func() bool { return screen.has(goHome + "No session of 10.244.1.7.") })
	dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)
	waitFor(t, "the session", func() bool {
		return screen.has(goHome+"1 session of 10.244.1.7: 1 open") && screen.has(lab.PodAddr.String()+":8080")
	})
	if !screen.has("CLOSED FIRST"+eraseRest) || screen.has("10.96.0.10:80") {
		t.Errorf("80 columns have no room for all, but for how it closed: %q", screen)
	}
	p.signal(t, syscall.SIGINT)
	p.exit(t, 130)
	if n := strings.Count(screen.String(), goHome+eraseDown); n != 1 {
		t.Errorf("the screen was cleared %d times, want once, or it flickers", n)
	}
}
