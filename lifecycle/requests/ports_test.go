package requests

import (
	"net/netip"
	"testing"
	"time"
)

// A server that listens on another port for each transfer, as one of passive FTP does,
// leaves nothing behind but what is told of the ports that are in use.
func TestPortsAreForgotten(t *testing.T) {
	t.Parallel()
	c := New()
	at := time.Unix(1000, 0)
	keepAlive := newLine(1)
	kept := keepAlive.Local.Port()
	for port := range uint16(10 * maxPorts) {
		other := newLine(2)
		other.Local = netip.AddrPortFrom(other.Local.Addr(), 20_000+port)
		c.Look(at, []Figures{keepAlive.at(0), other.at(0)})
		at = at.Add(lookEvery)
	}
	for _, h := range []history{c.strict, c.wide} {
		if len(h.ports) > maxPorts || h.ports[kept] == nil {
			t.Errorf("%d ports are remembered, want %d at the most; and the one in use: %t", len(h.ports), maxPorts, h.ports[kept] != nil)
		}
	}
}

// Of ports in use none is forgotten, however many there are.
func TestPortsInUseAreKept(t *testing.T) {
	t.Parallel()
	c := New()
	var all []Figures
	for port := range uint16(2 * maxPorts) {
		l := newLine(1)
		l.Local = netip.AddrPortFrom(l.Local.Addr(), 20_000+port)
		all = append(all, l.at(0))
	}
	for range 3 {
		c.Look(time.Unix(1000, 0), all)
	}
	if n := len(c.strict.ports); n != len(all) {
		t.Errorf("%d ports are remembered, want %d", n, len(all))
	}
}
