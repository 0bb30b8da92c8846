package main

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
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

// A moment that is old when it is acted on needs a younger look, if one can be had.
func TestOldMomentIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tc := range []struct {
		name      string
		age, cost time.Duration // of the moment, and of each look
		asks      bool          // a request is in flight by now
		deadline  time.Duration
		lasts     bool
		younger   bool
		within    time.Duration
	}{
		{"a young one", 100 * ms, 0, true, time.Hour, true, false, 0},
		{"still quiet", 300 * ms, 0, false, time.Hour, true, true, 100 * ms},
		{"a request by now", 300 * ms, 0, true, time.Hour, false, false, 100 * ms},
		{"slow looks, of which two have to agree", 300 * ms, 400 * ms, false, time.Hour, false, false, anotherLook},
		{"slow looks, and a request", 300 * ms, 400 * ms, true, time.Hour, false, false, anotherLook},
		{"no look", 300 * ms, time.Minute, false, time.Hour, false, false, anotherLook},
		{"no look before the deadline", 300 * ms, time.Minute, false, 50 * ms, false, false, 50 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				take := func(context.Context) (sockdiag.Look, error) {
					l := sockdiag.Look{At: time.Now(), Listening: []uint16{webPort.Port()}}
					if tc.asks {
						l.Sockets = []sockdiag.Socket{{Local: webPort, Peer: visitor, State: sockdiag.Established}}
					}
					<-time.After(tc.cost)
					return l, nil
				}
				j := &judge{
					gone: make(chan moment, 1), changes: make(chan struct{}, 1), rule: requests.ByWide,
					eyes: looks.NewEyes(looks.Looker{Take: take, Spent: func() time.Duration { return 0 }}, false),
				}
				j.allow(true, nil)
				<-time.After(ms)
				defer j.start(t.Context())()
				began := time.Now()
				m, lasts := j.newest(t.Context(), moment{at: began.Add(-tc.age)}, began.Add(tc.deadline))
				if took := time.Since(began); lasts != tc.lasts || took > tc.within {
					t.Errorf("lasts %t after %s, want %t within %s", lasts, took, tc.lasts, tc.within)
				}
				if younger := !m.at.Before(began); lasts && younger != tc.younger {
					t.Errorf("it is of a look of now: %t", younger)
				}
			})
		})
	}
}

// After a stall the moment of a new look may be old, too, when it is acted on: where no
// look follows it does not last.
func TestNewMomentIsOldByNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looked := 0
		take := func(ctx context.Context) (sockdiag.Look, error) {
			l := sockdiag.Look{At: time.Now()}
			if looked++; looked > 1 {
				<-ctx.Done()
			}
			<-time.After(time.Millisecond)
			return l, ctx.Err()
		}
		j := &judge{
			gone: make(chan moment, 1),
			eyes: looks.NewEyes(looks.Looker{Take: take, Spent: func() time.Duration { return 0 }}, false),
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		old := moment{at: time.Now().Add(-requests.Recent - 1)}
		end := j.eyes.Begin(func(looks.Sight) {
			select {
			case j.gone <- old:
			default:
			}
		})
		running.Go(func() { j.eyes.Run(ctx) })
		if _, lasts := j.newest(t.Context(), old, time.Now().Add(time.Hour)); lasts {
			t.Error("it lasts")
		}
		stop()
		running.Wait()
		end()
		if looked < 2 {
			t.Errorf("%d looks, want a second one", looked)
		}
	})
}

// Where each look takes long, the next one may come only much later: two that agree do.
func TestSlowLooksEndAWait(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, tc := range []struct {
		name       string
		cost       time.Duration // of a look, in CPU time
		takes      time.Duration
		asks, want bool
	}{
		{"very many sockets", 260 * ms, 280 * ms, false, true},
		{"little CPU time", 55 * ms, 500 * ms, false, true},
		{"a request at every other look", 55 * ms, 500 * ms, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var spent time.Duration
				looked := 0
				take := func(context.Context) (sockdiag.Look, error) {
					l := sockdiag.Look{At: time.Now(), Listening: []uint16{webPort.Port()}}
					if looked++; tc.asks && looked%2 == 0 {
						l.Sockets = []sockdiag.Socket{{Local: webPort, Peer: visitor, State: sockdiag.Established}}
					}
					<-time.After(tc.takes)
					spent += tc.cost
					return l, nil
				}
				j := &judge{
					gone: make(chan moment, 1), changes: make(chan struct{}, 1), rule: requests.ByWide,
					eyes: looks.NewEyes(looks.Looker{Take: take, Spent: func() time.Duration { return spent }}, false),
				}
				j.allow(true, nil)
				<-time.After(ms)
				defer j.start(t.Context())()
				deadline := time.Now().Add(2 * time.Minute)
				over := time.After(time.Until(deadline))
				for {
					select {
					case m := <-j.went():
						if _, lasts := j.newest(t.Context(), m, deadline); !lasts {
							continue
						}
						if !tc.want {
							t.Error("the wait has ended")
						}
						return
					case <-over:
						if tc.want {
							t.Error("the wait has not ended")
						}
						return
					}
				}
			})
		})
	}
}

// A look that was late counts no more once something else has held.
func TestLateLookIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := &judge{gone: make(chan moment, 1), changes: make(chan struct{}, 1), rule: requests.ByWide}
		late := func() looks.Sight {
			s := looks.Sight{}
			s.At = time.Now()
			<-time.After(requests.Recent + time.Millisecond)
			return s
		}
		j.allow(true, nil)
		<-time.After(time.Millisecond)
		j.look(late())
		j.allow(false, nil)
		j.allow(true, nil)
		<-time.After(time.Millisecond)
		j.look(late())
		select {
		case <-j.gone:
			t.Error("one late look is enough")
		default:
		}
		j.look(late())
		select {
		case <-j.gone:
		default:
			t.Error("two are not")
		}
	})
}
