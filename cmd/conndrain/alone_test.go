package main

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle/requests"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// A handshake counts where it is the server's, and while it is young.
func TestHandshakesThatCount(t *testing.T) {
	t.Parallel()
	scope := sockdiag.Scope{Ports: []uint16{8080}, Addresses: []netip.Addr{webPort.Addr()}}
	for _, tc := range []struct {
		name        string
		scope       sockdiag.Scope
		local, peer string
		age         time.Duration
		want        int
	}{
		{"on the port", scope, "10.244.1.7:8080", "10.244.2.9:40000", 0, 1},
		{"for 2 s", scope, "10.244.1.7:8080", "10.244.2.9:40000", 2 * time.Second, 1},
		{"for 3 s", scope, "10.244.1.7:8080", "10.244.2.9:40000", 3 * time.Second, 0},
		{"on another port", scope, "10.244.1.7:22", "10.244.2.9:40000", 0, 0},
		{"at another address", scope, "10.244.1.8:8080", "10.244.2.9:40000", 0, 0},
		{"of this machine", scope, "10.244.1.7:8080", "10.244.1.7:40000", 0, 0},
		{"on any port", sockdiag.Scope{}, "10.244.1.8:22", "10.244.2.9:40000", 0, 1},
	} {
		a := newAlone(looks.NewEyes(looks.Looker{}, false), tc.scope, nil)
		s := looks.Sight{Look: sockdiag.Look{At: time.Now(), Own: []netip.Addr{webPort.Addr()}, Sockets: []sockdiag.Socket{
			{Local: netip.MustParseAddrPort(tc.local), Peer: netip.MustParseAddrPort(tc.peer), State: sockdiag.SynRecv},
		}}}
		a.look(s)
		s.At = s.At.Add(tc.age)
		if a.look(s); a.Counts().Opening != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, a.Counts().Opening, tc.want)
		}
	}
}

// A port is refused only where it is seen that it is nobody's.
func TestPortsThatNobodyHas(t *testing.T) {
	t.Parallel()
	connected := sockdiag.Look{Sockets: []sockdiag.Socket{{Local: webPort, Peer: visitor, State: sockdiag.Established}}}
	for _, tc := range []struct {
		name    string
		sight   looks.Sight
		refused bool
	}{
		{"somebody listens", looks.Sight{Listened: []uint16{80, 8080}}, false},
		{"somebody did", looks.Sight{Look: connected}, false},
		{"nobody", looks.Sight{Listened: []uint16{80}}, true},
		{"unknown", looks.Sight{Err: errors.New("no answer")}, false},
	} {
		err := serves(tc.sight, []uint16{8080})
		if _, usage := errors.AsType[usageError](err); usage != tc.refused {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// One client port on two ports of a server is two connections.
func TestDoingByBothEnds(t *testing.T) {
	t.Parallel()
	other := netip.AddrPortFrom(webPort.Addr(), 9090)
	lonely := netip.AddrPortFrom(visitor.Addr(), 40002)
	connection := func(local, peer netip.AddrPort, c requests.Class) looks.Connection {
		return looks.Connection{Socket: sockdiag.Socket{Local: local, Peer: peer, State: sockdiag.Established}, Verdict: requests.Verdict{Wide: c}}
	}
	d := doingOf(looks.Sight{Look: sockdiag.Look{Traffic: []sockdiag.Traffic{{Known: true}}}, Counted: []looks.Connection{
		connection(webPort, visitor, requests.Owes), connection(other, visitor, requests.Sending), connection(webPort, lonely, requests.Between),
	}})
	for _, tc := range []struct {
		client, server netip.AddrPort
		want           string
	}{
		{visitor, webPort, "owes"}, {visitor, other, "sending"},
		{visitor, netip.AddrPortFrom(webPort.Addr(), 80), ""}, {lonely, netip.AddrPortFrom(webPort.Addr(), 80), "between"},
	} {
		if got := d.of(&conntrack.Session{Protocol: conntrack.TCP, Client: tc.client, Server: tc.server}); got != tc.want {
			t.Errorf("%s to %s: %q, want %q", tc.client, tc.server, got, tc.want)
		}
	}
}
