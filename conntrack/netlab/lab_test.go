//go:build linux

package netlab

import (
	"context"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// serveName answers each TCP connection with the peer's address, until the
// test's end.
func serveName(t *testing.T, n *Namespace, address string) {
	t.Helper()
	l, err := n.Listen(soon(t), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, netip.MustParseAddrPort(c.RemoteAddr().String()).Addr().Unmap().String())
			_ = c.Close()
		}
	}()
}

// ask connects and returns the name by which the server knows the caller.
func ask(t *testing.T, n *Namespace, to netip.AddrPort) string {
	t.Helper()
	c, err := n.Dial(soon(t), "tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// entries returns the lines of n's table about a protocol.
func entries(t *testing.T, n *Namespace, proto string) []string {
	t.Helper()
	var lines []string
	err := n.Do(func() error {
		b, err := readTable()
		for line := range strings.Lines(string(b)) {
			if slices.Contains(strings.Fields(line), proto) {
				lines = append(lines, line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// IPv6 comes first: an address or neighbour that is not ready yet would cost it
// a second, which the order of the answers could not show otherwise.
func TestLab(t *testing.T) {
	l := newLab(t, LabOptions{NodePort: 30080})
	serveName(t, l.Pod, ":8080")
	for _, tt := range []struct {
		name string
		from *Namespace
		to   netip.AddrPort
		want netip.Addr
	}{
		{"service IPv6", l.Client, netip.AddrPortFrom(l.ServiceAddr6, 80), l.ClientAddr6},
		{"node port IPv6", l.Client, netip.AddrPortFrom(l.NodeAddr6, 30080), l.ClientAddr6},
		{"pod IPv6", l.Client, netip.AddrPortFrom(l.PodAddr6, 8080), l.ClientAddr6},
		{"service", l.Client, netip.AddrPortFrom(l.ServiceAddr, 80), l.ClientAddr},
		{"node port", l.Client, netip.AddrPortFrom(l.NodeAddr, 30080), l.ClientAddr},
		{"pod", l.Client, netip.AddrPortFrom(l.PodAddr, 8080), l.ClientAddr},
		{"node to pod", l.Node, netip.AddrPortFrom(l.PodAddr, 8080), l.GatewayAddr},
		{"node to service", l.Node, netip.AddrPortFrom(l.ServiceAddr, 80), l.NodeAddr},
		{"pod to itself", l.Pod, netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddr("127.0.0.1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ask(t, tt.from, tt.to); got != tt.want.String() {
				t.Errorf("server sees %s, want %s", got, tt.want)
			}
		})
	}
	if got := entries(t, l.Node, "tcp"); len(got) != 8 {
		t.Errorf("node tracks %d connections, want 8:\n%s", len(got), strings.Join(got, ""))
	}
	for name, n := range map[string]*Namespace{"client": l.Client, "pod": l.Pod} {
		if got := entries(t, n, "tcp"); len(got) != 0 {
			t.Errorf("%s tracks %s, but has no rule to", name, got)
		}
	}
}

func TestLabUDP(t *testing.T) {
	l := newLab(t, LabOptions{ServicePort: 53, PodPort: 5353})
	server, err := l.Pod.ListenPacket(soon(t), "udp", ":5353")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	for _, a := range []netip.Addr{l.ServiceAddr, l.ServiceAddr6} {
		c, err := l.Client.Dial(soon(t), "udp", netip.AddrPortFrom(a, 53).String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "ping"); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 10)
		size, from, err := server.ReadFrom(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := server.WriteTo(b[:size], from); err != nil {
			t.Fatal(err)
		}
		if size, err = c.Read(b); err != nil || string(b[:size]) != "ping" {
			t.Errorf("answer through %s: %q, %v", a, b[:size], err)
		}
		_ = c.Close()
	}
	if got := entries(t, l.Node, "udp"); len(got) != 2 {
		t.Errorf("node tracks %d flows, want 2: %s", len(got), got)
	}
}

func TestUntracked(t *testing.T) {
	l := newLab(t, LabOptions{Untracked: true})
	serveName(t, l.Pod, ":8080")
	ask(t, l.Client, netip.AddrPortFrom(l.PodAddr, 8080))
	if got := entries(t, l.Node, "tcp"); len(got) != 0 {
		t.Errorf("a node without rules tracks %s", got)
	}
	if err := l.Node.Track(); err != nil {
		t.Fatal(err)
	}
	ask(t, l.Client, netip.AddrPortFrom(l.PodAddr, 8080))
	if got := entries(t, l.Node, "tcp"); len(got) != 1 {
		t.Errorf("a node with a rule tracks %d connections, want 1: %s", len(got), got)
	}
}

func TestNoTrack(t *testing.T) {
	l := newLab(t, LabOptions{})
	for _, a := range []netip.Addr{l.PodAddr, l.PodAddr6} {
		if err := l.Node.NoTrack(a); err != nil {
			t.Fatal(err)
		}
	}
	serveName(t, l.Pod, ":8080")
	ask(t, l.Client, netip.AddrPortFrom(l.PodAddr, 8080))
	ask(t, l.Client, netip.AddrPortFrom(l.PodAddr6, 8080))
	serveName(t, l.Client, ":9000")
	ask(t, l.Pod, netip.AddrPortFrom(l.ClientAddr, 9000))
	if got := entries(t, l.Node, "tcp"); len(got) != 0 {
		t.Errorf("node tracks %s in spite of the rule", got)
	}
	ask(t, l.Node, netip.AddrPortFrom(l.ClientAddr, 9000))
	if got := entries(t, l.Node, "tcp"); len(got) != 1 {
		t.Errorf("node tracks %d connections of others, want 1: %s", len(got), got)
	}
}

func TestRedirect(t *testing.T) {
	l := newLab(t, LabOptions{})
	if err := l.Pod.Redirect(8080, 15006); err != nil {
		t.Fatal(err)
	}
	serveName(t, l.Pod, ":15006")
	if got := ask(t, l.Client, netip.AddrPortFrom(l.ServiceAddr, 80)); got != l.ClientAddr.String() {
		t.Errorf("proxy sees %s, want %s", got, l.ClientAddr)
	}
	if got := ask(t, l.Client, netip.AddrPortFrom(l.ServiceAddr6, 80)); got != l.ClientAddr6.String() {
		t.Errorf("proxy sees %s, want %s", got, l.ClientAddr6)
	}
}

func TestMasquerade(t *testing.T) {
	l := newLab(t, LabOptions{})
	serveName(t, l.Pod, ":8080")
	for _, p := range []netip.Prefix{single(l.PodAddr), single(l.PodAddr6)} {
		if err := l.Node.Masquerade(p, p); err != nil {
			t.Fatal(err)
		}
	}
	// Through its own Service the pod reaches itself, under the node's name.
	if got := ask(t, l.Pod, netip.AddrPortFrom(l.ServiceAddr, 80)); got != l.GatewayAddr.String() {
		t.Errorf("server sees %s, want %s", got, l.GatewayAddr)
	}
	if got := ask(t, l.Pod, netip.AddrPortFrom(l.ServiceAddr6, 80)); got != l.GatewayAddr6.String() {
		t.Errorf("server sees %s, want %s", got, l.GatewayAddr6)
	}
	if got := ask(t, l.Client, netip.AddrPortFrom(l.PodAddr, 8080)); got != l.ClientAddr.String() {
		t.Errorf("server sees %s, want %s", got, l.ClientAddr)
	}
	if err := l.Node.Masquerade(netip.Prefix{}, netip.PrefixFrom(l.PodAddr, 24)); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, l.Client, netip.AddrPortFrom(l.PodAddr, 8080)); got != l.GatewayAddr.String() {
		t.Errorf("server sees %s, want %s", got, l.GatewayAddr)
	}
}

func TestDialNeedsAnAddress(t *testing.T) {
	n := newNamespace(t)
	for _, a := range []string{"localhost:80", ":80", "127.0.0.1"} {
		if c, err := n.Dial(soon(t), "tcp", a); err == nil {
			t.Errorf("dial %q worked: %v", a, c.RemoteAddr())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Dial(ctx, "tcp", "192.0.2.1:80"); err == nil {
		t.Error("dial with an ended context worked")
	}
}

func TestLinks(t *testing.T) {
	l := newLab(t, LabOptions{})
	got, err := l.Node.Links()
	if err != nil {
		t.Fatal(err)
	}
	// Some kernels put tunnel devices of their own into every namespace.
	got = slices.DeleteFunc(got, func(s string) bool { return s != "lo" && !strings.HasPrefix(s, "to-") })
	if diff := cmp.Diff([]string{"lo", "to-client", "to-pod"}, got); diff != "" {
		t.Error(diff)
	}
	if err := l.Node.Address("nowhere", single(l.PodAddr)); err == nil || !strings.Contains(err.Error(), `no link "nowhere"`) {
		t.Errorf("address for a link that is not there: %v", err)
	}
	if err := l.Pod.Address("lo", netip.MustParsePrefix("10.244.1.8/32")); err != nil {
		t.Fatal(err)
	}
	if c, err := l.Pod.Listen(soon(t), "tcp", "10.244.1.8:0"); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
}
