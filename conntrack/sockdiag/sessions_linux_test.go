package sockdiag

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

func TestDualStackListenerShowsPlainAddresses(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	l := listen(t, lab.Pod, "[::]:8080")
	for _, tt := range []struct {
		name     string
		from, to netip.Addr
		port     uint16
		local    netip.Addr
	}{
		{"IPv4", lab.ClientAddr, lab.PodAddr, lab.PodPort, lab.PodAddr},
		{"IPv4 through the Service", lab.ClientAddr, lab.ServiceAddr, lab.ServicePort, lab.PodAddr},
		{"IPv6", lab.ClientAddr6, lab.PodAddr6, lab.PodPort, lab.PodAddr6},
		{"IPv6 through the Service", lab.ClientAddr6, lab.ServiceAddr6, lab.ServicePort, lab.PodAddr6},
	} {
		c, s := connect(t, lab.Client, l, netip.AddrPortFrom(tt.to, tt.port))
		got := eventually(t, lab.Pod, is(c, Established)).Counted(Scope{})[0]
		want := netip.AddrPortFrom(tt.local, lab.PodPort)
		if got.Local != want || got.Peer.Addr() != tt.from || got.Inode == 0 {
			t.Errorf("%s: local %s, peer %s, inode %d, want local %s, peer %s, some inode",
				tt.name, got.Local, got.Peer, got.Inode, want, tt.from)
		}
		_, _ = c.Close(), s.Close()
		eventually(t, lab.Pod)
	}
}

func TestHalfClosed(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	l := listen(t, lab.Pod, ":8080")
	to := netip.AddrPortFrom(lab.PodAddr, 8080)

	c, s := connect(t, lab.Client, l, to)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	eventually(t, lab.Pod, is(c, CloseWait))
	if _, err := s.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := readAll(t, c); n != int64(len("answer")) {
		t.Errorf("the client got %d bytes of the answer", n)
	}
	eventually(t, lab.Pod)

	c, s = connect(t, lab.Client, l, to)
	eventually(t, lab.Pod, is(c, Established))
	if err := s.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	// The client never closes: there is nothing left to save.
	eventually(t, lab.Pod)
}

func TestUndeliveredAfterClose(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	l := listen(t, lab.Pod, ":8080")
	for _, tt := range []struct {
		name        string
		clientFirst bool
		want        State
	}{
		{"server closes first", false, FinWait1},
		{"client closes its half first", true, LastAck},
	} {
		c, s := connect(t, lab.Client, l, netip.AddrPortFrom(lab.PodAddr, 8080))
		if tt.clientFirst {
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			eventually(t, lab.Pod, is(c, CloseWait))
		}
		stuff(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		got := eventually(t, lab.Pod, is(c, tt.want)).Counted(Scope{})[0]
		if got.SendQueue <= 1 || got.Inode != 0 {
			t.Errorf("%s: %d bytes in the send queue, inode %d, want much and a socket of no process", tt.name, got.SendQueue, got.Inode)
		}
		if n := readAll(t, c); n < int64(got.SendQueue)-1 {
			t.Errorf("%s: the client got %d bytes, %d were on their way", tt.name, n, got.SendQueue)
		}
		eventually(t, lab.Pod)
	}
}

func TestOnlyServersAndOnlyPeersElsewhere(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := listen(t, lab.Pod, ":8080")
	database := listen(t, lab.Client, ":5432")

	connect(t, lab.Pod, database, netip.AddrPortFrom(lab.ClientAddr, 5432))
	for _, own := range []string{"127.0.0.1:8080", "[::1]:8080", "10.244.1.7:8080", "[fd00:244:1::7]:8080"} {
		connect(t, lab.Pod, server, netip.MustParseAddrPort(own))
	}
	eventually(t, lab.Pod)

	c, _ := connect(t, lab.Client, server, netip.AddrPortFrom(lab.PodAddr, 8080))
	look := eventually(t, lab.Pod, is(c, Established))
	for _, a := range []netip.Addr{lab.PodAddr, lab.PodAddr6, netip.MustParseAddr("127.0.0.1")} {
		if !slices.Contains(look.Own, a) {
			t.Errorf("own addresses %v, %s is missing", look.Own, a)
		}
	}

	// A server that has stopped to listen still answers what it has accepted.
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, lab.Pod)
	after := lookIn(t, lab.Pod)
	if got, want := peers(after, Scope{Listened: look.Listening}), []string{is(c, Established)}; !slices.Equal(got, want) {
		t.Errorf("with the ports of the earlier look: counted %q, want %q", got, want)
	}
}

// A service mesh redirects the served port to its proxy, which keeps a pool of
// connections to the application on loopback.
func TestRedirectedToAProxyWithAPool(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	if err := lab.Pod.Redirect(8080, 15006); err != nil {
		t.Fatal(err)
	}
	application := listen(t, lab.Pod, "127.0.0.1:8080")
	proxy := listen(t, lab.Pod, ":15006")
	connect(t, lab.Pod, application, netip.MustParseAddrPort("127.0.0.1:8080"))

	c, s := connect(t, lab.Client, proxy, netip.AddrPortFrom(lab.PodAddr, 8080))
	got := eventually(t, lab.Pod, is(c, Established)).Counted(Scope{})[0]
	if want := netip.AddrPortFrom(lab.PodAddr, 15006); got.Local != want {
		t.Errorf("local %s, want the proxy's %s", got.Local, want)
	}
	_, _ = c.Close(), s.Close()
	eventually(t, lab.Pod)
}

// So much is seen without any right, and no less without netlink.
func TestNobodySeesAsMuchAsRoot(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	l := listen(t, lab.Pod, ":8080")
	c4, _ := connect(t, lab.Client, l, netip.AddrPortFrom(lab.PodAddr, 8080))
	c6, _ := connect(t, lab.Client, l, netip.AddrPortFrom(lab.PodAddr6, 8080))
	all := describe(eventually(t, lab.Pod, is(c4, Established), is(c6, Established)))
	for how, source := range map[string]Source{"as it is": SockDiag, barred: ProcNet} {
		want := "uid 65534, capabilities 0000000000000000, " + source.String() + "\n" + all
		var got string
		err := lab.Pod.Do(func() (err error) {
			got, err = lookAsNobody(how)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s: nobody saw\n%s\nroot saw\n%s", how, got, want)
		}
	}
}

func TestManySocketsAreAllThere(t *testing.T) {
	t.Parallel()
	const conns = 2000
	lab := newLab(t, netlab.LabOptions{Untracked: true})
	l := listen(t, lab.Pod, ":8080")
	want := make([]string, 0, conns)
	for range conns {
		c, _ := connect(t, lab.Client, l, netip.AddrPortFrom(lab.PodAddr, 8080))
		want = append(want, is(c, Established))
	}
	eventually(t, lab.Pod, want...)
}

func TestLookEndsWithItsContext(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{Untracked: true})
	err := lab.Pod.Do(func() error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Take(ctx)
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
