package node

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// A UDP session holds its pod while packets come, and for five seconds after the
// last one.
func TestUDPSessionHolds(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	server, err := s.lab.Pod.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(s.lab.PodAddr, s.lab.PodPort).String())
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	client, err := s.lab.Client.Dial(t.Context(), "udp", netip.AddrPortFrom(s.lab.ServiceAddr, s.lab.ServicePort).String())
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	exchange := func() {
		t.Helper()
		b := make([]byte, 16)
		_, err := client.Write([]byte("ping"))
		must(t, err)
		_, from, err := server.ReadFrom(b)
		must(t, err)
		_, err = server.WriteTo([]byte("pong"), from)
		must(t, err)
		_, err = client.Read(b)
		must(t, err)
	}
	exchange()
	s.delete(900)
	s.withdraw()
	p := s.prestop()
	s.eventually("it holds", func() error {
		exchange()
		p.holds(200 * time.Millisecond)
		if !strings.Contains(p.said(), "to=draining") {
			return errors.New("it does not yet")
		}
		return nil
	})
	for range 16 { // longer than the quiet that ends it
		exchange()
		p.holds(500 * time.Millisecond)
	}
	exchange()
	last := time.Now()
	p.returns()
	if quiet := time.Since(last); quiet < 4*time.Second || quiet > 20*time.Second {
		t.Errorf("returned %s after the last packet, want 5s", quiet)
	}
	s.says(p, "reason=Drained helper=true")
	s.eventNaming("Draining: Waiting up to", "for 1 session", "port 8080/udp")
}

// Where the node masquerades what its pods send elsewhere, their hooks still come
// from their own addresses.
func TestHookOnAMasqueradingNode(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	must(t, s.lab.Node.Masquerade(netip.PrefixFrom(s.lab.PodAddr, s.lab.PodAddr.BitLen()), netip.Prefix{}))
	c := s.connect(s.serve())
	s.delete(60)
	s.withdraw()
	p := s.prestop()
	s.reaches(lifecycle.Draining, 1)
	p.holds(2 * time.Second)
	c.end(t)
	p.returns()
	s.says(p, "reason=Drained helper=true")
}
