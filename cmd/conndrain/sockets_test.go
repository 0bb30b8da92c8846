package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// TestSocketsHaveTheLastWord lets conntrack lose sight of things in several ways
// and sockets tell what is so. A look takes 10 ms, a fast pause thus 200 ms.
func TestSocketsHaveTheLastWord(t *testing.T) {
	type counts = conntrack.Counts
	const s, ms = time.Second, time.Millisecond
	for _, tc := range []struct {
		name     string
		prepare  func(*fakeWatch)
		settle   time.Duration
		want     ending
		maxLooks int
	}{
		{
			name: "a look after conntrack's zero, and only one",
			prepare: func(w *fakeWatch) {
				w.set(known(counts{Open: 1}))
				w.later(2*s, known(counts{}))
			},
			want:     ending{lifecycle.Drained, 2*s + 10*ms, 0},
			maxLooks: 2,
		},
		{
			name: "nothing is known before the first look",
			prepare: func(w *fakeWatch) {
				w.onReport = func(c *counts, _ conntrack.SocketReport) { c.Known = true }
			},
			// The look that made it known is not one after the zero.
			want:     ending{lifecycle.Drained, 20 * ms, 0},
			maxLooks: 2,
		},
		{
			name: "a lost session ends with its socket",
			prepare: func(w *fakeWatch) {
				w.set(known(counts{Lost: 1}))
				start := time.Now()
				w.onReport = func(c *counts, r conntrack.SocketReport) {
					if r.At.Sub(start) >= 5*s {
						c.Lost = 0
					}
				}
			},
			// At 5 s a look begins and ends it, the next one confirms.
			want:     ending{lifecycle.Drained, 5*s + 20*ms, 0},
			maxLooks: 5*5 + 3,
		},
		{
			name: "a lost session beside an open one is looked at once a second",
			prepare: func(w *fakeWatch) {
				w.set(known(counts{Open: 1, Lost: 1}))
				w.later(10*s+500*ms, known(counts{}))
			},
			want:     ending{lifecycle.Drained, 10*s + 510*ms, 0},
			maxLooks: 12,
		},
		{
			name: "a session that is over but for its socket is looked at often",
			prepare: func(w *fakeWatch) {
				w.set(known(counts{Open: 1}))
				w.later(10*s, func(w *fakeWatch) { w.counts.Held = 1 })
				start := time.Now()
				w.onReport = func(c *counts, r conntrack.SocketReport) {
					if r.At.Sub(start) >= 11*s {
						c.Open, c.Held = 0, 0
					}
				}
			},
			want:     ending{lifecycle.Drained, 11*s + 20*ms, 0},
			maxLooks: 1 + 5 + 3,
		},
		{
			name: "a socket that conntrack may not know is looked at again",
			prepare: func(w *fakeWatch) {
				w.set(known(counts{}))
				w.onReport = func(c *counts, _ conntrack.SocketReport) { c.ReportsPending = len(w.reports) == 1 }
			},
			want:     ending{lifecycle.Drained, s + 10*ms, 0},
			maxLooks: 2,
		},
		{
			name: "a socket may be a session to the end, and nobody says none",
			prepare: func(w *fakeWatch) {
				w.set(known(counts{}))
				w.onReport = func(c *counts, _ conntrack.SocketReport) { c.ReportsPending = true }
			},
			want:     ending{lifecycle.Expired, time.Minute, noCut},
			maxLooks: 61,
		},
		{
			name: "a blind session is waited for",
			prepare: func(w *fakeWatch) {
				w.set(known(counts{}))
				start := time.Now()
				w.onReport = func(c *counts, r conntrack.SocketReport) {
					c.ReportsPending = len(w.reports) == 1
					c.Open, c.Held = 0, 0
					if len(w.reports) > 1 && r.At.Sub(start) < 4*s {
						c.Open, c.Held, c.Source = 1, 1, conntrack.FromSockets
					}
				}
			},
			want:     ending{lifecycle.Drained, 4*s + 20*ms, 0},
			maxLooks: 2 + 3*5 + 3,
		},
		{
			name:   "looks go on in the quiet time, and a recent one is enough",
			settle: 5 * s,
			prepare: func(w *fakeWatch) {
				w.set(known(counts{}))
			},
			want:     ending{lifecycle.Drained, 5 * s, 0},
			maxLooks: 11,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFakeWatch()
				tc.prepare(fake)
				w := newTestWaiter(fake)
				w.policy.Settle = tc.settle
				w.sockets = newSockets(func(context.Context, []uint16) (conntrack.SocketReport, error) {
					r := conntrack.SocketReport{At: time.Now()}
					<-time.After(10 * time.Millisecond)
					return r, nil
				}, func(string) {})
				r, err := w.wait(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, endOf(r)); diff != "" {
					t.Errorf("ending (-want +got):\n%s", diff)
				}
				if n := len(fake.reports); n > tc.maxLooks {
					t.Errorf("%d looks, want %d at most", n, tc.maxLooks)
				}
				w.close()
			})
		})
	}
}

// TestWaitDoesNotHangWithTheSockets has a look that never ends.
func TestWaitDoesNotHangWithTheSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeWatch()
		fake.set(known(conntrack.Counts{}))
		answer := make(chan struct{})
		w := newTestWaiter(fake)
		w.sockets = newSockets(func(context.Context, []uint16) (conntrack.SocketReport, error) {
			<-answer
			return conntrack.SocketReport{}, nil
		}, func(string) {})
		r, err := w.wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ending{lifecycle.Expired, time.Minute, noCut}, endOf(r)); diff != "" {
			t.Errorf("ending (-want +got):\n%s", diff)
		}
		close(answer)
		w.close()
	})
}

func TestLooksThatFail(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		good int // which look is the first to work
		want ending
		said string
	}{
		{
			name: "the kernel cannot be asked for sockets",
			err:  fmt.Errorf("no tcp_diag: %w", errors.ErrUnsupported),
			want: ending{lifecycle.Drained, 0, 0},
			said: "going by connection tracking alone: no tcp_diag: unsupported operation\n",
		},
		{
			name: "some looks fail",
			err:  errors.New("interrupted"),
			good: 3,
			want: ending{lifecycle.Drained, 3 * time.Second, 0},
			said: "sockets of this machine are unknown: interrupted\n",
		},
		{
			name: "all looks fail",
			err:  errors.New("interrupted"),
			good: 1000,
			want: ending{lifecycle.Expired, time.Minute, noCut},
			said: "sockets of this machine are unknown: interrupted\n",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake, alone := newFakeWatch(), newFakeWatch()
				fake.set(known(conntrack.Counts{}))
				alone.set(known(conntrack.Counts{}))
				w := newTestWaiter(fake)
				w.openAlone = alone.open
				looks, said := 0, ""
				noted := map[string]bool{}
				w.sockets = newSockets(func(context.Context, []uint16) (conntrack.SocketReport, error) {
					looks++
					if looks <= tc.good || tc.good == 0 {
						return conntrack.SocketReport{}, tc.err
					}
					return conntrack.SocketReport{At: time.Now()}, nil
				}, func(text string) {
					if !noted[text] {
						noted[text] = true
						said += text + "\n"
					}
				})
				r, err := w.wait(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, endOf(r)); diff != "" {
					t.Errorf("ending (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tc.said, said); diff != "" {
					t.Errorf("said (-want +got):\n%s", diff)
				}
				w.close()
				if !fake.closed {
					t.Error("the watch is still open")
				}
				if used := w.watch == watch(alone); used != alone.closed || used != errors.Is(tc.err, errors.ErrUnsupported) {
					t.Errorf("a watch without sockets: used %t, closed %t", used, alone.closed)
				}
			})
		})
	}
}

// TestLooksHaveABudget holds the pause between looks against what one costs.
func TestLooksHaveABudget(t *testing.T) {
	holding := conntrack.Counts{Known: true, Lost: 1}
	for _, tc := range []struct{ cost, want time.Duration }{
		{0, 20 * time.Millisecond},
		{time.Millisecond, 20 * time.Millisecond},
		{10 * time.Millisecond, 200 * time.Millisecond},
		{time.Second, time.Second},
	} {
		s := newSockets(nil, nil)
		s.started = time.Now()
		s.cost = tc.cost
		if got := s.pause(holding); got != tc.want {
			t.Errorf("looks of %s: pause %s, want %s", tc.cost, got, tc.want)
		}
	}
}
