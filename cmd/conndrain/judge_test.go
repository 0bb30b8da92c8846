package main

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle/requests"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

var (
	visitor = netip.MustParseAddrPort("10.244.2.9:40000")
	webPort = netip.MustParseAddrPort("10.244.1.7:8080")
)

// What conntrack knows of holds while the sockets do not show that nothing is in flight
// on it; and a look decides only if it began after it was asked for.
func TestWhatConntrackKnowsHolds(t *testing.T) {
	t.Parallel()
	socket := func(s sockdiag.State) []sockdiag.Socket {
		return []sockdiag.Socket{{Local: webPort, Peer: visitor, State: s}}
	}
	between := []looks.Connection{{Socket: socket(sockdiag.Established)[0], Verdict: requests.Verdict{Strict: requests.Between, Wide: requests.Between}}}
	for _, tc := range []struct {
		name    string
		sockets []sockdiag.Socket
		counted []looks.Connection
		early   bool
		gone    bool
		holding int
	}{
		{"without a socket", nil, nil, false, false, 1},
		{"with one that does not count", socket(sockdiag.Established), nil, false, false, 1},
		{"with one that no server has yet", socket(sockdiag.SynRecv), nil, false, false, 1},
		{"with one that has closed", socket(sockdiag.TimeWait), nil, false, true, 0},
		{"between two requests", socket(sockdiag.Established), between, false, true, 0},
		{"between two requests, a moment ago", socket(sockdiag.Established), between, true, false, 0},
	} {
		j := &judge{gone: make(chan moment, 1), rule: requests.ByWide}
		s := looks.Sight{Look: sockdiag.Look{At: time.Now(), Sockets: tc.sockets}, Counted: tc.counted}
		j.allow(true, []conntrack.Session{{Protocol: conntrack.TCP, State: conntrack.Open, Client: visitor}})
		if !tc.early {
			s.At = time.Now().Add(time.Millisecond)
		}
		j.look(s)
		if _, holding, known := j.classes(); len(j.gone) == 1 != tc.gone || holding != tc.holding || !known {
			t.Errorf("%s: the moment has come: %t, %d hold, known %t", tc.name, len(j.gone) == 1, holding, known)
		}
		if j.allow(false, nil); len(j.gone) > 0 {
			t.Errorf("%s: the moment is acted on after it was taken back", tc.name)
		}
	}
}

// A moment that nobody has acted on is over with the next look that sees a request, or
// nothing at all.
func TestMomentEnds(t *testing.T) {
	t.Parallel()
	connection := func(doing requests.Class) []looks.Connection {
		return []looks.Connection{{Verdict: requests.Verdict{Strict: doing, Wide: doing}}}
	}
	for _, tc := range []struct {
		name string
		next looks.Sight
		want bool
	}{
		{"it lasts", looks.Sight{Counted: connection(requests.Between)}, true},
		{"a request", looks.Sight{Counted: connection(requests.Owes)}, false},
		{"a look that failed", looks.Sight{Err: context.DeadlineExceeded}, false},
	} {
		j := &judge{gone: make(chan moment, 1), rule: requests.ByWide}
		j.allow(true, nil)
		first, next := looks.Sight{Counted: connection(requests.Between)}, tc.next
		first.At = time.Now().Add(time.Millisecond)
		j.look(first)
		if len(j.gone) != 1 {
			t.Fatalf("%s: no moment without a request", tc.name)
		}
		next.At = first.At.Add(time.Second)
		j.look(next)
		if got := len(j.gone) == 1; got != tc.want {
			t.Errorf("%s: the moment is there: %t", tc.name, got)
		} else if got && !(<-j.gone).at.Equal(next.At) {
			t.Errorf("%s: the moment is not of the latest look", tc.name)
		}
	}
}
