package sockdiag

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// patience is for a machine that is much slower than it should be.
const patience = 60 * time.Second

// newLab builds a client, a node and a pod, and takes them away after the test.
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

// lookIn takes a look inside of n.
func lookIn(t *testing.T, n *netlab.Namespace) Look {
	t.Helper()
	var l Look
	err := n.Do(func() (err error) {
		l, err = Take(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// listen serves nothing: the test itself accepts.
func listen(t *testing.T, n *netlab.Namespace, address string) net.Listener {
	t.Helper()
	l, err := n.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// connect returns both ends of a new connection from n to the listener.
func connect(t *testing.T, n *netlab.Namespace, l net.Listener, address netip.AddrPort) (client, server *net.TCPConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := n.Dial(ctx, "tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

// stuff writes until neither side's buffers take any more.
func stuff(t *testing.T, c net.Conn) {
	t.Helper()
	block := make([]byte, 64<<10)
	for {
		if err := c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Write(block); n < len(block) {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			return
		}
	}
}

// peers are the peers of the counted sockets, sorted, with their states.
func peers(l Look, s Scope) []string {
	got := []string{}
	for _, k := range l.Counted(s) {
		got = append(got, fmt.Sprintf("%s %s", k.Peer, k.State))
	}
	slices.Sort(got)
	return got
}

// eventually looks into n until the counted peers are the wanted ones.
func eventually(t *testing.T, n *netlab.Namespace, want ...string) Look {
	t.Helper()
	slices.Sort(want)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		l := lookIn(t, n)
		got := peers(l, Scope{})
		if slices.Equal(got, want) {
			return l
		}
		select {
		case <-ctx.Done():
			t.Fatalf("counted %q, want %q", got, want)
		case <-tick.C:
		}
	}
}

func is(c net.Conn, state State) string { return fmt.Sprintf("%s %s", c.LocalAddr(), state) }

// readAll takes all that the other side still has to send.
func readAll(t *testing.T, c net.Conn) int64 {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// One question for both address families has the same answers as one for each.
func TestOneQuestionForBothFamilies(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	l := listen(t, lab.Pod, ":8080") // of both
	listen(t, lab.Pod, lab.PodAddr.String()+":9000")
	c4, s4 := connect(t, lab.Client, l, netip.AddrPortFrom(lab.PodAddr, 8080))
	c6, s6 := connect(t, lab.Client, l, netip.AddrPortFrom(lab.PodAddr6, 8080))
	for _, c := range []interface{ Close() error }{c4, s4, c6, s6} {
		defer c.Close() //nolint:revive // at the end
	}
	type socket struct {
		local, peer netip.AddrPort
		state       State
		known       bool
	}
	var one, each []socket
	into := func(all *[]socket) func(answer) {
		return func(a answer) { *all = append(*all, socket{a.Local, a.Peer, a.State, a.traffic.Known}) }
	}
	err := lab.Pod.Do(func() error {
		if err := ask(t.Context(), kindOlder, encodeOlder(true, states...), true, into(&one)); err != nil {
			return err
		}
		for _, family := range []uint8{familyIPv4, familyIPv6} {
			if err := ask(t.Context(), unix.SOCK_DIAG_BY_FAMILY, encodeRequest(family, true, states...), true, into(&each)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	compare := func(a, b socket) int { return cmp.Or(a.local.Compare(b.local), a.peer.Compare(b.peer)) }
	slices.SortFunc(one, compare)
	slices.SortFunc(each, compare)
	if len(each) != 4 || !slices.Equal(one, each) {
		t.Errorf("one question: %v\nwant %v", one, each)
	}
}
