package node

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

const (
	untilSessions  = lifecycle.UntilSessions
	untilWithdrawn = lifecycle.UntilWithdrawn
	untilRequests  = lifecycle.UntilRequests
	untilStrict    = lifecycle.UntilRequestsStrict
)

var (
	podAddr     = netip.MustParseAddr("10.244.1.7")
	serviceAddr = netip.MustParseAddr("10.96.0.10")
)

func peer(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("192.168.10.20"), port)
}

// tcp is a session of a client's port with a port of the pod.
func tcp(client, port uint16) conntrack.Session {
	at := netip.AddrPortFrom(podAddr, port)
	return conntrack.Session{
		Protocol: conntrack.TCP, State: conntrack.Open, Client: peer(client), Server: at,
		Destination: netip.AddrPortFrom(serviceAddr, 80), Quiet: 60 * lookEvery,
	}
}

func with(s conntrack.Session, change func(*conntrack.Session)) conntrack.Session {
	change(&s)
	return s
}

func in(state conntrack.State) func(*conntrack.Session) {
	return func(s *conntrack.Session) { s.State = state }
}
func udp(s *conntrack.Session)    { s.Protocol = conntrack.UDP }
func active(s *conntrack.Session) { s.Quiet = -1 }

// askedFor is a port of the pod itself, from which something led elsewhere.
func askedFor(port uint16) func(*conntrack.Session) {
	return func(s *conntrack.Session) { s.Destination = netip.AddrPortFrom(podAddr, port) }
}

func ports(all map[uint16]lifecycle.Until, rest lifecycle.Until) lifecycle.Untils {
	return lifecycle.Untils{Ports: all, Rest: rest}
}

// What each kind of session holds its pod for, and where its client is listed.
func TestHoldingOf(t *testing.T) {
	served := []uint16{8080, 9000, 7000, 6000}
	mixed := ports(map[uint16]lifecycle.Until{8080: untilRequests, 9000: untilStrict, 7000: untilWithdrawn}, untilSessions)
	for _, tc := range []struct {
		name     string
		sessions []conntrack.Session
		untils   lifecycle.Untils
		want     []int // sessions, requests, left
		lists    map[string][]uint16
	}{
		{"none", nil, mixed, []int{0, 0, 0}, nil},
		{"requests", []conntrack.Session{tcp(1, 8080)}, mixed, []int{0, 1, 0}, map[string][]uint16{"wide": {1}}},
		{"strict", []conntrack.Session{tcp(1, 9000)}, mixed, []int{0, 1, 0}, map[string][]uint16{"strict": {1}}},
		{"withdrawn", []conntrack.Session{tcp(1, 7000)}, mixed, []int{0, 0, 1}, map[string][]uint16{"ignored": {1}}},
		{"lost", []conntrack.Session{with(tcp(1, 8080), in(conntrack.Lost))}, mixed, []int{0, 1, 0}, map[string][]uint16{"wide": {1}}},
		{"idle", []conntrack.Session{with(tcp(1, 8080), in(conntrack.Idle))}, mixed, []int{0, 1, 0}, map[string][]uint16{"wide": {1}, "ignored": {1}}},
		{"idle, strict", []conntrack.Session{with(tcp(1, 9000), in(conntrack.Idle))}, mixed, []int{0, 1, 0}, map[string][]uint16{"strict": {1}, "ignored": {1}}},
		{"idle, and the same client's end at another port", []conntrack.Session{with(tcp(1, 9000), in(conntrack.Idle)), tcp(1, 8080)}, mixed, []int{0, 2, 0}, map[string][]uint16{"strict": {1}}},
		{"idle, of sessions", []conntrack.Session{with(tcp(1, 6000), in(conntrack.Idle))}, mixed, []int{0, 0, 0}, map[string][]uint16{"ignored": {1}}},
		{"idle, left", []conntrack.Session{with(tcp(1, 7000), in(conntrack.Idle))}, mixed, []int{0, 0, 0}, map[string][]uint16{"ignored": {1}}},
		{"idle UDP", []conntrack.Session{with(with(tcp(1, 8080), in(conntrack.Idle)), udp)}, mixed, []int{0, 0, 0}, nil},
		{"idle, and held for its sessions", []conntrack.Session{with(tcp(1, 8080), in(conntrack.Idle))}, inEffect(mixed, false), []int{0, 0, 0}, map[string][]uint16{"ignored": {1}}},
		{"a handshake", []conntrack.Session{with(tcp(1, 8080), in(conntrack.Opening))}, mixed, []int{0, 0, 0}, nil},
		{"UDP holds until it ends", []conntrack.Session{with(tcp(1, 8080), udp)}, mixed, []int{1, 0, 0}, nil},
		{"UDP that is left", []conntrack.Session{with(tcp(1, 7000), udp)}, mixed, []int{0, 0, 1}, nil},
		{"the rest", []conntrack.Session{tcp(1, 8080)}, ports(nil, untilRequests), []int{0, 1, 0}, map[string][]uint16{"wide": {1}}},
		{
			"a proxy took it", []conntrack.Session{with(tcp(1, 15006), askedFor(8080))}, mixed,
			[]int{0, 1, 0}, map[string][]uint16{"wide": {1}},
		},
		{
			"nobody knows for which port", []conntrack.Session{with(tcp(1, 15006), askedFor(15006))}, mixed,
			[]int{1, 0, 0}, nil,
		},
		{
			"nobody knows, and none holds for its sessions", []conntrack.Session{with(tcp(1, 15006), askedFor(15006))},
			ports(map[uint16]lifecycle.Until{8080: untilStrict}, untilRequests), []int{0, 1, 0}, map[string][]uint16{"strict": {1}},
		},
		{
			"a Service's port is none of the pod", []conntrack.Session{
				with(tcp(1, 8080), func(s *conntrack.Session) { s.Destination = netip.AddrPortFrom(serviceAddr, 7000) }),
			}, mixed, []int{0, 1, 0}, map[string][]uint16{"wide": {1}},
		},
		{
			"one client's end at two ports", []conntrack.Session{tcp(1, 8080), tcp(1, 9000), tcp(1, 7000)}, mixed,
			[]int{0, 2, 1}, map[string][]uint16{"strict": {1}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := holdingOf(conntrack.Counts{Known: true}, tc.sessions, tc.untils, served)
			if diff := cmp.Diff(tc.want, []int{h.sessions, h.requests, h.left}); diff != "" {
				t.Errorf("sessions, requests and left (-want +got):\n%s", diff)
			}
			lists := make(map[string][]uint16)
			for name, set := range map[string]lifecycle.PeerSet{"wide": h.wide, "strict": h.strict, "ignored": h.ignored} {
				for p := range set {
					lists[name] = append(lists[name], p.Port())
				}
			}
			if len(tc.lists)+len(lists) > 0 && cmp.Diff(tc.lists, lists) != "" {
				t.Errorf("lists (-want +got):\n%s", cmp.Diff(tc.lists, lists))
			}
		})
	}
}

// What people are told of does not have what is left to the application.
func TestHoldingCounts(t *testing.T) {
	u := ports(map[uint16]lifecycle.Until{7000: untilWithdrawn}, untilRequests)
	h := holdingOf(conntrack.Counts{Known: true, Open: 4, Lost: 1, Active: 2, New: 3}, []conntrack.Session{
		tcp(1, 8080), with(tcp(2, 8080), active), with(tcp(3, 8080), in(conntrack.Lost)), with(tcp(4, 7000), active), tcp(5, 7000),
	}, u, nil)
	if diff := cmp.Diff(conntrack.Counts{Known: true, Open: 2, Lost: 1, Active: 1, New: 3}, h.counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// One that is idle is left out where it holds nothing, and is one of those that hold where
// a request can be in flight on it.
func TestIdleIsCounted(t *testing.T) {
	all := []conntrack.Session{
		tcp(1, 8080), with(tcp(2, 8080), in(conntrack.Idle)), with(tcp(3, 6000), in(conntrack.Idle)), with(tcp(4, 7000), in(conntrack.Idle)),
		with(with(tcp(5, 8080), in(conntrack.Idle)), udp),
	}
	u := ports(map[uint16]lifecycle.Until{8080: untilRequests, 7000: untilWithdrawn}, untilSessions)
	for _, tc := range []struct {
		judged     bool
		open, idle int
	}{{true, 2, 3}, {false, 1, 4}} {
		effect := inEffect(u, tc.judged)
		h := holdingOf(conntrack.Counts{Known: true, Open: 1, Idle: 4}, all, effect, nil)
		if diff := cmp.Diff(conntrack.Counts{Known: true, Open: tc.open, Idle: tc.idle}, h.counts); diff != "" {
			t.Errorf("judged %t: counts (-want +got):\n%s", tc.judged, diff)
		}
		if n := len(holders(all, effect, nil)); n != tc.open || h.all() != tc.open {
			t.Errorf("judged %t: %d are named, %d hold, want %d", tc.judged, n, h.all(), tc.open)
		}
	}
}

// A client whose other connection holds is not ignored.
func TestIgnored(t *testing.T) {
	h := holdingOf(conntrack.Counts{}, []conntrack.Session{tcp(1, 8080)}, ports(nil, untilRequests), nil)
	h.ignore([]netip.AddrPort{peer(1), peer(2)})
	if h.ignored.Has(peer(1)) || !h.ignored.Has(peer(2)) || h.named() != 2 {
		t.Errorf("ignored %v", h.ignored)
	}
}

// Without anybody who can tell, a pod is held for its sessions.
func TestInEffect(t *testing.T) {
	mixed := ports(map[uint16]lifecycle.Until{8080: untilRequests, 7000: untilWithdrawn}, untilStrict)
	if got := inEffect(mixed, true); !got.Equal(mixed) {
		t.Errorf("%+v, want %+v", got, mixed)
	}
	want := ports(map[uint16]lifecycle.Until{8080: untilSessions, 7000: untilWithdrawn}, untilSessions)
	if got := inEffect(mixed, false); !got.Equal(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestLeftPorts(t *testing.T) {
	u := ports(map[uint16]lifecycle.Until{8080: untilRequests, 7000: untilWithdrawn}, untilSessions)
	for _, served := range [][]uint16{{7000, 8080}, nil} {
		if got := leftPorts(u, served); !slices.Equal(got, []uint16{7000}) {
			t.Errorf("of %v: %v", served, got)
		}
	}
	if got := leftPorts(lifecycle.Untils{}, nil); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

// crowd is a watch of so many sessions.
type crowd struct {
	watch
	sessions []conntrack.Session
}

func (c crowd) Sessions() []conntrack.Session { return c.sessions }
func (c crowd) Others() []netip.AddrPort      { return nil }

// A pod with too many clients for a hook is held for its sessions, of which idle ones do
// not hold.
func TestTooManyAreHeldForTheirSessions(t *testing.T) {
	for _, tc := range []struct {
		clients            int
		sessions, requests int
		why                string
	}{ // the idle one is named twice
		{lifecycle.MaxQuietPeers - 1, 0, lifecycle.MaxQuietPeers - 1, ""},
		{lifecycle.MaxQuietPeers, lifecycle.MaxQuietPeers - 1, 0, whyTooMany},
	} {
		c := crowd{sessions: []conntrack.Session{with(tcp(1, 8080), in(conntrack.Idle))}}
		for port := range tc.clients - 1 {
			c.sessions = append(c.sessions, tcp(uint16(port+2), 8080))
		}
		v := newVigil()
		v.watch, v.settings.Until = c, ports(nil, untilRequests)
		v.judges.hear(lifecycle.DrainRequest{Can: []string{lifecycle.CanJudge}, Sockets: &lifecycle.SocketList{}}, time.Now())
		v.hold(conntrack.Counts{Known: true, Open: tc.clients - 1, Idle: 1}, time.Now(), true)
		if a := v.apart; a.sessions != tc.sessions || a.requests != tc.requests || a.unjudged != tc.why || len(v.left()) != a.all() {
			t.Errorf("%d clients: %d sessions, %d requests, %q, %d named", tc.clients, a.sessions, a.requests, a.unjudged, len(v.left()))
		}
	}
}
