package looks

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// server is a namespace with one connection, at which a look takes so long.
func server(cost time.Duration, count *int, peers ...string) func(context.Context) (sockdiag.Look, error) {
	return func(context.Context) (sockdiag.Look, error) {
		*count++
		l := sockdiag.Look{At: time.Now(), Listening: []uint16{8080}}
		for _, p := range peers {
			l.Sockets = append(l.Sockets, sockdiag.Socket{
				Local: netip.MustParseAddrPort("10.244.1.7:8080"), Peer: netip.MustParseAddrPort(p), State: sockdiag.Established,
			})
		}
		if cost > 0 {
			<-time.After(cost)
		}
		return l, nil
	}
}

// clock is what a process spends that never waits.
func clock() time.Duration { return time.Duration(time.Now().UnixNano()) }

// A look that had to wait for a CPU costs what it took of it: the next one is not put off.
func TestLooksThatWaitForACPU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		spent := time.Duration(0)
		e := NewEyes(Looker{Take: server(100*ms, &n, one), Spent: func() time.Duration {
			spent += ms / 2
			return spent
		}}, false)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		defer e.Begin(func(Sight) {})()
		e.Run(ctx)
		if n < 95 {
			t.Errorf("%d looks of 100 ms in 10 s", n)
		}
	})
}

// What the kernel says of this process grows while it works, and not while it sleeps.
func TestProcessTime(t *testing.T) {
	before, began := processTime(), time.Now()
	<-time.After(200 * ms)
	if spent := processTime() - before; spent > 100*ms {
		t.Errorf("%s of a CPU asleep", spent)
	}
	for processTime()-before < 20*ms {
		if time.Since(began) > time.Minute {
			t.Fatal("a minute of work is no 20 ms of a CPU")
		}
	}
}

const one, two = "10.244.2.9:40000", "10.244.2.9:40002"

// How many looks there are in ten seconds: whatever they cost, they take no more than
// their share of the time.
func TestLooksAreBounded(t *testing.T) {
	for _, tc := range []struct {
		name     string
		cost     time.Duration
		peers    []string
		attended bool
		learns   bool
		asked    bool
		from, to int
	}{
		{"a wait", 0, []string{one}, true, false, false, 450, 456},
		{"a wait whose looks are dear", 10 * ms, []string{one}, true, false, false, 48, 51},
		{"a wait whose looks are very dear", 30 * ms, []string{one}, true, false, false, 16, 17},
		{"a wait whose looks are asked for as well", 10 * ms, []string{one}, true, false, true, 48, 51},
		{"learning", 0, []string{one}, false, true, false, 198, 201},
		{"learning by looks that are dear", 2 * ms, []string{one}, false, true, false, 48, 51},
		{"learning where nobody is", 0, nil, false, true, false, 39, 41},
		{"nobody waits, and nothing is learned", 0, []string{one}, false, false, false, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				e := NewEyes(Looker{Take: server(tc.cost, &n, tc.peers...), Spent: clock}, tc.learns)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if tc.attended {
					defer e.Begin(func(Sight) {})()
				}
				if tc.asked {
					go func() {
						for ctx.Err() == nil {
							e.Fresh(ctx)
						}
					}()
				}
				e.Run(ctx)
				if n < tc.from || n > tc.to {
					t.Errorf("%d looks, want %d to %d", n, tc.from, tc.to)
				}
			})
		})
	}
}

// What a wait's looks may take can be less, and is never more than a twentieth.
func TestSpend(t *testing.T) {
	for _, tc := range []struct {
		name     string
		parts    []float64
		from, to int
	}{
		{"nothing is said", nil, 450, 456},
		{"as much as there is", []float64{0.05}, 450, 456},
		{"more", []float64{0.5}, 450, 456},
		{"a hundredth", []float64{0.01}, 99, 101},
		{"a thousandth", []float64{0.001}, 10, 11},
		{"hardly any", []float64{1e-9}, 2, 3},
		{"the last word counts", []float64{0.001, 0.05}, 450, 456},
		{"it is left to the hook again", []float64{0.001, 0}, 450, 456},
		{"nonsense", []float64{-1}, 450, 456},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				e := NewEyes(Looker{Take: server(ms, &n, one), Spent: clock}, false)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				defer e.Begin(func(Sight) {})()
				for _, part := range tc.parts {
					e.Spend(part)
				}
				e.Run(ctx)
				if n < tc.from || n > tc.to {
					t.Errorf("%d looks of a millisecond in ten seconds, want %d to %d", n, tc.from, tc.to)
				}
			})
		})
	}
}

// A look that somebody needs begins after it was asked for.
func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		e := NewEyes(Looker{Take: server(ms, &n, one), Spent: clock}, false)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go e.Run(ctx)
		for range 5 {
			<-time.After(time.Second)
			asked := time.Now()
			if s := e.Fresh(t.Context()); s.Err != nil || s.At.Before(asked) || len(s.Counted) != 1 {
				t.Errorf("%+v asked for at %s", s, asked)
			}
			if took := time.Since(asked); took > 50*ms {
				t.Errorf("took %s", took)
			}
		}
		if n != 5 {
			t.Errorf("%d looks, want one for each question", n)
		}
		cancel()
		synctest.Wait()
		late, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if s := e.Fresh(late); s.Err == nil {
			t.Error("a look came from nobody")
		}
	})
}

// Every look of a wait is passed on, in order, and none after its end.
func TestBeginAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		e := NewEyes(Looker{Take: server(0, &n, one)}, false)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go e.Run(ctx)
		var got []time.Time
		end := e.Begin(func(s Sight) { got = append(got, s.At) })
		<-time.After(time.Second)
		end()
		had := len(got)
		<-time.After(time.Second)
		if had < 40 || len(got) != had {
			t.Errorf("%d looks, and %d after the end", had, len(got)-had)
		}
		for i := range got[1:] {
			if !got[i].Before(got[i+1]) {
				t.Error("out of order")
			}
		}
	})
}

// A look that fails says why, and does not make the next one wait for long.
func TestLookThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		l := Looker{Spent: clock, Take: func(ctx context.Context) (sockdiag.Look, error) {
			<-ctx.Done()
			return sockdiag.Look{}, broken
		}}
		began := time.Now()
		if s := l.Look(t.Context()); !errors.Is(s.Err, broken) || s.Blind() == "" || time.Since(began) != timeout {
			t.Errorf("%+v after %s", s, time.Since(began))
		}
		if next := l.Affordable().Sub(began); next > 2*time.Second {
			t.Errorf("the next one only after %s", next)
		}
	})
}

func set(peers ...string) lifecycle.PeerSet {
	s := make(lifecycle.PeerSet)
	for _, p := range peers {
		s.Add(netip.MustParseAddrPort(p))
	}
	return s
}

// Who may live without a socket to be seen.
func TestPeers(t *testing.T) {
	t.Parallel()
	var p Peers
	var n int
	at := time.Unix(1000, 0)
	look := func(err error, peers ...string) {
		t.Helper()
		l, _ := server(0, &n, peers...)(t.Context())
		l.At = at
		at = at.Add(20 * ms)
		p.Look(Sight{Look: l, Err: err})
	}
	const idle = "10.244.2.9:40004" // holds by its socket only
	missing := func(want int, of ...string) {
		t.Helper()
		if got := p.Missing(set(of...), set(idle)); got != want {
			t.Errorf("%d of %v are missing, want %d", got, of, want)
		}
	}
	missing(1, one)
	missing(0, idle)
	look(nil, one, idle)
	missing(0, one, idle)
	missing(1, one, two) // never seen
	look(nil)
	missing(1, one) // one look can miss a socket
	missing(1, idle)
	look(errors.New("broken"))
	missing(1, one) // and one that fails tells nothing
	look(nil)
	missing(0, one, idle)
	look(nil, one)
	look(nil)
	missing(1, one) // again
	at = at.Add(2 * rememberPeers)
	look(nil)
	missing(1, one) // nobody remembers
}
