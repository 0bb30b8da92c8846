package main

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// Whoever asks by an address that a wait without --address did not list at its start is
// waited for all the same: by a link-local one, or one that came later, as that of a
// machine that is taken over.
func TestWaitUntilRequestsAtEveryAddress(t *testing.T) {
	for _, tracked := range []bool{true, false} {
		server := func(t *testing.T) *web {
			t.Helper()
			t.Parallel()
			w := newWeb(t, netlab.LabOptions{Untracked: true})
			if tracked {
				if err := w.lab.Pod.Track(); err != nil {
					t.Fatal(err)
				}
			}
			return w
		}
		t.Run(fmt.Sprintf("link-local, tracked %t", tracked), func(t *testing.T) {
			w := server(t)
			at := linkLocal(t, w.lab.Pod)
			w.ask("/slow?1h", func() (c net.Conn, err error) {
				err = w.lab.Node.Do(func() error {
					var d net.Dialer
					c, err = d.DialContext(t.Context(), "tcp", fmt.Sprintf("[%s%%to-pod]:8080", at))
					return err
				})
				return c, err
			})
			p := start(t, w.lab.Pod, nil, "wait", "--until", "requests", "--output", "json", "--timeout", "5s")
			waitFor(t, "it is seen", func() bool { return p.stderr.has("open=1") && p.stderr.has("owes=1") })
			p.exit(t, 3)
			if got := p.requests(t); got.Reason != "Expired" || !is(got.Open, 1) || !is(got.Cut, 1) || !is(got.Peak, 1) {
				t.Errorf("%+v", got)
			}
		})
		t.Run(fmt.Sprintf("a later one, tracked %t", tracked), func(t *testing.T) {
			w := server(t)
			p := start(t, w.lab.Pod, nil, "wait", "--until", "requests", "--settle", "3s", "--output", "json", "--timeout", "60s")
			waitFor(t, "it waits", func() bool { return p.stderr.has("open=0") })
			later := netip.MustParseAddr("10.244.1.8")
			if err := w.lab.Pod.Address("to-node", netip.PrefixFrom(later, 24)); err != nil {
				t.Fatal(err)
			}
			w.ask("/slow?5s", func() (net.Conn, error) {
				return w.lab.Node.Dial(t.Context(), "tcp", netip.AddrPortFrom(later, 8080).String())
			})
			p.exit(t, 0)
			w.mu.Lock()
			answered := !w.served["/slow"].IsZero()
			w.mu.Unlock()
			if !answered {
				t.Error("ended with a request in flight")
			}
			if got := p.requests(t); got.Reason != "Drained" || !is(got.Open, 1) || !is(got.Cut, 0) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// ask requests the path on a connection that stays.
func (w *web) ask(path string, dial func() (net.Conn, error)) {
	w.Helper()
	var c net.Conn
	waitFor(w.T, "a connection", func() (ok bool) { // an address can take a moment
		var err error
		c, err = dial()
		return err == nil
	})
	w.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: pod\r\n\r\n", path); err != nil {
		w.Fatal(err)
	}
}

// linkLocal is the address of IPv6 that the namespace gave itself.
func linkLocal(t *testing.T, n *netlab.Namespace) (at netip.Addr) {
	t.Helper()
	waitFor(t, "a link-local address", func() bool {
		if err := n.Do(func() error {
			all, err := net.InterfaceAddrs()
			for _, a := range all {
				if p, ok := a.(*net.IPNet); ok && p.IP.IsLinkLocalUnicast() {
					at, _ = netip.AddrFromSlice(p.IP)
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return at.IsValid()
	})
	return at
}
