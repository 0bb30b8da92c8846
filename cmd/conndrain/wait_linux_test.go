package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// newLab builds a client, a node and a pod; nothing of it outlives the test.
func newLab(t *testing.T, o netlab.LabOptions) *netlab.Lab {
	t.Helper()
	lab, err := netlab.NewLab(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return lab
}

// serve accepts on a port inside of n and answers each line with itself. A
// connection ends when its client closes.
func serve(t *testing.T, n *netlab.Namespace, port uint16) {
	t.Helper()
	l, err := n.Listen(t.Context(), "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var conns []net.Conn
		defer func() {
			for _, c := range conns {
				_ = c.Close()
			}
		}()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
}

// dial connects and has one line answered, so that the session is established in
// both directions.
func dial(t *testing.T, n *netlab.Namespace, addr netip.Addr, port uint16) net.Conn {
	t.Helper()
	c, err := n.Dial(t.Context(), "tcp", netip.AddrPortFrom(addr, port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	talk(t, c)
	return c
}

func talk(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

func closeNow(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWaitExpires(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	c := dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)

	p := start(t, lab.Node, nil, "wait", "--address", lab.PodAddr.String(), "--timeout", "5s", "--output", "json")
	p.exit(t, 3)
	got := p.outcome(t)
	if got.WaitedSeconds < 5 {
		t.Errorf("waited %g s, want 5 s", got.WaitedSeconds)
	}
	got.WaitedSeconds = 5
	want := outcome{
		Reason: "Expired", Source: "conntrack", WaitedSeconds: 5,
		Open: new(1), Idle: new(0), Lost: new(0), Cut: new(1), Peak: new(1), New: new(0),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	talk(t, c) // it was alive all the time
}

func TestWaitDrains(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	c := dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)

	began := time.Now()
	p := start(t, lab.Node, nil, "wait", "--address", lab.PodAddr.String(), "--timeout", "50s", "--output", "json")
	waitFor(t, "the session is seen", func() bool { return p.stderr.has("open=1") })
	select {
	case <-p.ended:
		t.Fatal("ended before the session")
	case <-time.After(2 * time.Second):
	}
	lived := time.Since(began)
	closeNow(t, c)
	p.exit(t, 0)
	got := p.outcome(t)
	// The process began a moment after the clock of the test.
	if got.WaitedSeconds < 2 || got.WaitedSeconds > 40 {
		t.Errorf("waited %g s, the session lived %s", got.WaitedSeconds, lived)
	}
	got.WaitedSeconds = 2
	want := outcome{
		Reason: "Drained", Source: "conntrack", WaitedSeconds: 2,
		Open: new(0), Idle: new(0), Lost: new(0), Cut: new(0), Peak: new(1), New: new(0),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

func TestWaitIsCancelled(t *testing.T) {
	// A signal that the caller of the tests ignores, as nohup does, is ignored by
	// children too, unless this process takes it.
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, syscall.SIGHUP)
	defer signal.Stop(taken)
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		p := start(t, lab.Node, nil, "wait", "--address", lab.PodAddr.String(), "--output", "json")
		waitFor(t, "the session is seen", func() bool { return p.stderr.has("open=1") })
		p.signal(t, s)
		p.exit(t, 130)
		if got := p.outcome(t); got.Reason != "Cancelled" || !is(got.Open, 1) || !is(got.Cut, 0) {
			t.Errorf("after %s: want one open session, Cancelled", s)
		}
	}
}
