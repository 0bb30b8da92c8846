package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// What surely was in flight is told of sessions that hold for their requests, and of no
// other.
func TestFlight(t *testing.T) {
	t.Parallel()
	names := func(class string) map[string]lifecycle.PeerSet {
		return map[string]lifecycle.PeerSet{class: {peer(1): {}}}
	}
	for _, tc := range []struct {
		name             string
		says             map[string]lifecycle.PeerSet // nil is nobody
		left             []conntrack.Session
		requests, silent int
	}{
		{"nobody tells", nil, []conntrack.Session{tcp(1, 8080)}, 0, 0},
		{"owes, silent", names("owes"), []conntrack.Session{tcp(1, 8080), tcp(2, 8080)}, 1, 1},
		{"owes, and asked a moment ago", names("owes"), []conntrack.Session{with(tcp(1, 8080), active)}, 1, 0},
		{"sending", names("sending"), []conntrack.Session{tcp(1, 8080)}, 1, 1},
		{"streaming, by the strict rule", names("streaming"), []conntrack.Session{tcp(1, 8081)}, 1, 1},
		{"between", names("between"), []conntrack.Session{tcp(1, 8080)}, 0, 0},
		{"unknown", names("unknown"), []conntrack.Session{tcp(1, 8080)}, 0, 0},
		{"held for its sessions", names("owes"), []conntrack.Session{tcp(1, 9000)}, 0, 0},
		{"UDP", names("owes"), []conntrack.Session{with(tcp(1, 8080), udp)}, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			v, now := newVigil(), time.Now()
			v.apart.untils = ports(map[uint16]lifecycle.Until{8081: untilStrict, 9000: untilSessions}, untilRequests)
			if tc.says != nil {
				v.judges.hear(lifecycle.DrainRequest{
					Can: []string{lifecycle.CanJudge}, Sockets: &lifecycle.SocketList{},
					Requests: &lifecycle.RequestReport{Classes: tc.says},
				}, now)
			}
			f := v.flight(tc.left, lifecycle.Observation{}, now)
			if diff := cmp.Diff([]int{tc.requests, tc.silent}, []int{f.requests, f.silent}); diff != "" {
				t.Errorf("in flight, and silent of these (-want +got):\n%s", diff)
			}
		})
	}
}

// It was settle that held where nothing else did.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tc := range []struct {
		name   string
		change func(*lifecycle.Observation)
		want   bool
	}{
		{"settle", func(o *lifecycle.Observation) { o.Policy.Settle = time.Minute }, true},
		{"min-delay", func(o *lifecycle.Observation) { o.Policy.MinDelay = time.Minute }, true},
		{"both are over", func(*lifecycle.Observation) {}, false},
		{"a session as well", func(o *lifecycle.Observation) { o.Policy.Settle, o.Blocking = time.Minute, 1 }, false},
		{"nothing that holds for requests", func(o *lifecycle.Observation) { o.Policy.Settle, o.Requests = time.Minute, 0 }, false},
		{"nobody knows", func(o *lifecycle.Observation) { o.Policy.Settle, o.Known = time.Minute, false }, false},
		{"it was sent new traffic", func(o *lifecycle.Observation) { o.Policy.Settle, o.Routed = time.Minute, true }, false},
	} {
		o := lifecycle.Observation{
			Known: true, Requests: 1, Deadline: now, WithdrawnAt: now.Add(-10 * time.Second),
			Policy: lifecycle.Policy{Settle: 5 * time.Second, SettleMax: time.Hour},
		}
		tc.change(&o)
		if got := unsettled(o, now); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}
