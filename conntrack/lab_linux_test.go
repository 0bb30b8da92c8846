package conntrack

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

func TestMain(m *testing.M) {
	netlab.GuardTable()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience is how long a condition may take on a slow machine.
const patience = 2 * time.Minute

// eventually polls until ok, or fails the test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still not after %s: %s", patience, what)
		}
	}
}

// always polls for a while and fails the test as soon as it is not ok.
func always(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	limit := time.After(d)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if !ok() {
			t.Fatalf("no longer: %s", what)
		}
		select {
		case <-tick.C:
		case <-limit:
			return
		}
	}
}

func newLab(t *testing.T, o netlab.LabOptions) *netlab.Lab {
	t.Helper()
	l, err := netlab.NewLab(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, l.Close()) })
	return l
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newReader reads the namespace's table.
func newReader(n *netlab.Namespace) *Reader { return NewReader(Config{NetNS: n.FD()}) }

// watch follows a target and waits for the first snapshot.
func watch(t *testing.T, r *Reader, target Target) *Watch {
	t.Helper()
	w, err := r.Watch(t.Context(), target)
	must(t, err)
	t.Cleanup(func() { check(t, w.Close()) })
	known(t, w)
	return w
}

func known(t *testing.T, w *Watch) {
	t.Helper()
	eventually(t, "the counts are known", func() bool { return w.Counts().Known })
}

// counts waits until the watch shows these figures.
func counts(t *testing.T, w *Watch, open, idle, lost int) {
	t.Helper()
	var c Counts
	defer func() {
		if t.Failed() {
			sessions := w.Sessions()
			t.Logf("last seen: %+v, first of them %+v, err %v", c, sessions[:min(3, len(sessions))], w.Err())
		}
	}()
	eventually(t, fmt.Sprintf("open %d, idle %d, lost %d", open, idle, lost), func() bool {
		c = w.Counts()
		return c.Known && c.Open == open && c.Idle == idle && c.Lost == lost && c.Opening == 0
	})
}

// echo is a TCP server that sends back what it gets. Its connections can be had.
type echo struct {
	net.Listener
	conns chan net.Conn
}

func serve(t *testing.T, n *netlab.Namespace, network, address string) *echo {
	t.Helper()
	l, err := n.Listen(t.Context(), network, address)
	must(t, err)
	e := &echo{Listener: l, conns: make(chan net.Conn, 20000)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.conns <- c
		}
	}()
	t.Cleanup(func() {
		check(t, l.Close())
		<-done
		close(e.conns)
		for c := range e.conns {
			_ = c.Close()
		}
	})
	return e
}

// connection is both ends of one TCP connection.
type connection struct {
	client, server *net.TCPConn
}

// connect connects from a namespace to a server and returns both ends.
func connect(t *testing.T, n *netlab.Namespace, e *echo, address string) connection {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := n.Dial(ctx, "tcp", address)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	server := <-e.conns
	t.Cleanup(func() { _ = server.Close() })
	return connection{c.(*net.TCPConn), server.(*net.TCPConn)}
}

// say sends a message from one end and waits until the other has it.
func say(t *testing.T, from, to net.Conn) {
	t.Helper()
	message := []byte("hello")
	_, err := from.Write(message)
	must(t, err)
	must(t, to.SetReadDeadline(time.Now().Add(patience)))
	_, err = io.ReadFull(to, message)
	must(t, err)
}

// end closes both ends in an orderly way, the client first.
func (c connection) end(t *testing.T) {
	t.Helper()
	must(t, c.client.CloseWrite())
	_, err := io.ReadAll(c.server)
	must(t, err)
	must(t, c.server.Close())
	_, err = io.ReadAll(c.client)
	must(t, err)
	must(t, c.client.Close())
}

func hostPort(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }
