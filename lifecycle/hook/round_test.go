package hook

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle"
)

// newRounds is a sidecar without a listener, for fake time.
func newRounds(t *testing.T, c Config) *sidecar {
	t.Helper()
	c.Node = "192.0.2.1"
	c.Defaults()
	life, stop := context.WithCancel(context.Background())
	s := &sidecar{config: c, life: life, idle: make(chan struct{}, 1), eyes: newEyes(c, false)}
	s.rounds.Go(func() { s.eyes.Run(life) })
	t.Cleanup(func() {
		stop()
		s.rounds.Wait()
	})
	return s
}

// ending is how a hook ended, and when, from the test's beginning.
type ending struct {
	reason string
	after  time.Duration
}

// hooks come to the sidecar at these moments, and are all held.
func (s *sidecar) hooks(t *testing.T, come ...time.Duration) []ending {
	t.Helper()
	began := time.Now()
	endings := make([]chan ending, len(come))
	for i, at := range come {
		endings[i] = make(chan ending, 1)
		time.AfterFunc(at, func() {
			w := httptest.NewRecorder()
			s.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, DrainPath, nil))
			reason, _, _ := strings.Cut(w.Body.String(), " ")
			endings[i] <- ending{reason, time.Since(began)}
		})
	}
	all := make([]ending, len(come))
	for i := range endings {
		all[i] = <-endings[i]
	}
	return all
}

// restarts is a helper that finds out within two seconds that the pod does not terminate,
// for a hook from before the deletion, and ends the drain of the others at the moment.
func restarts(deletion, ends time.Duration) helper {
	start := time.Now()
	drained := drain(ends, 100*time.Second)
	return func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
		if time.Since(start)-lifecycle.Seconds(r.ElapsedSeconds) >= deletion {
			return drained(ctx, r)
		}
		if lifecycle.Seconds(r.ElapsedSeconds) < 2*time.Second {
			return always(http.StatusOK, lifecycle.DrainAnswer{Phase: "serving"})(ctx, r)
		}
		return always(http.StatusOK, lifecycle.DrainAnswer{Phase: "released", Reason: lifecycle.NotTerminating})(ctx, r)
	}
}

// later is a session that begins at the moment, and does not end.
func later(begin time.Duration) func(context.Context) (sockdiag.Look, error) {
	start, none, one := time.Now(), session(0), session(100*time.Hour)
	return func(ctx context.Context) (sockdiag.Look, error) {
		if time.Since(start) < begin {
			return none(ctx)
		}
		return one(ctx)
	}
}

// Whoever can reach the pod begins a wait, and a hook of the kubelet's that joins it is held
// for as long as if it had begun its own.
func TestHookJoinsTheWaitOfAnother(t *testing.T) {
	const s = time.Second
	type want struct {
		reason lifecycle.Reason
		after  time.Duration
	}
	for _, tc := range []struct {
		name            string
		helper          func() helper
		look            func() func(context.Context) (sockdiag.Look, error)
		grace, fallback time.Duration
		come            []time.Duration
		want            []want
	}{
		{"a deletion after a stranger or a restart",
			func() helper { return restarts(700*ms, 20*s) }, func() func(context.Context) (sockdiag.Look, error) { return session(100 * time.Hour) },
			60 * s, 0, []time.Duration{0, 700 * ms, 705 * ms},
			[]want{{lifecycle.NotTerminating, 2 * s}, {lifecycle.Drained, 20 * s}, {lifecycle.Drained, 20 * s}}},
		{"no helper, a stranger before, a session",
			func() helper { return absent }, func() func(context.Context) (sockdiag.Look, error) { return session(100 * time.Hour) },
			10 * s, 4 * s, []time.Duration{0, 7 * s, 7005 * ms},
			[]want{{lifecycle.Expired, 8 * s}, {lifecycle.Expired, 15 * s}, {lifecycle.Expired, 15005 * ms}}},
		{"no helper, a stranger before, no session",
			func() helper { return absent }, func() func(context.Context) (sockdiag.Look, error) { return session(0) },
			100 * s, 0, []time.Duration{0, 10 * s},
			[]want{{lifecycle.Drained, 15 * s}, {lifecycle.Drained, 25 * s}}},
		{"no helper, strangers all the time",
			func() helper { return absent }, func() func(context.Context) (sockdiag.Look, error) { return session(100 * time.Hour) },
			10 * s, 4 * s, []time.Duration{0, 2 * s, 4 * s, 6 * s, 8100 * ms, 12 * s},
			[]want{{lifecycle.Expired, 8 * s}, {lifecycle.Expired, 10 * s}, {lifecycle.Expired, 12 * s}, {lifecycle.Expired, 14 * s}, {lifecycle.Expired, 16100 * ms}, {lifecycle.Expired, 20 * s}}},
		{"no helper, several containers, no session",
			func() helper { return absent }, func() func(context.Context) (sockdiag.Look, error) { return session(0) },
			100 * s, 0, []time.Duration{0, 5 * ms, 10 * ms, 15 * ms},
			[]want{{lifecycle.Drained, 15 * s}, {lifecycle.Drained, 15 * s}, {lifecycle.Drained, 15 * s}, {lifecycle.Drained, 15 * s}}},
		{"no helper, several containers, a helper that hangs, a session",
			func() helper { return hangs }, func() func(context.Context) (sockdiag.Look, error) { return session(100 * time.Hour) },
			10 * s, 0, []time.Duration{0, 5 * ms, 10 * ms, 15 * ms},
			[]want{{lifecycle.Expired, 8 * s}, {lifecycle.Expired, 8 * s}, {lifecycle.Expired, 8 * s}, {lifecycle.Expired, 8 * s}}},
		{"the helper dies, and its deadline is all hooks'",
			func() helper { return until(2*s, drain(time.Hour, 8*s), absent) }, func() func(context.Context) (sockdiag.Look, error) { return session(100 * time.Hour) },
			900 * s, 0, []time.Duration{0, 5 * ms},
			[]want{{lifecycle.Expired, 8 * s}, {lifecycle.Expired, 8 * s}}},
		{"the helper hangs, and its deadline is all hooks'",
			func() helper { return until(2*s, drain(time.Hour, 8*s), hangs) }, func() func(context.Context) (sockdiag.Look, error) { return session(100 * time.Hour) },
			900 * s, 0, []time.Duration{0, 5 * ms},
			[]want{{lifecycle.Expired, 8 * s}, {lifecycle.Expired, 8 * s}}},
		{"the helper dies, and its deadline is that of the next wait, too",
			func() helper { return until(2*s, drain(time.Hour, 20*s), absent) }, func() func(context.Context) (sockdiag.Look, error) { return later(15500 * ms) },
			900 * s, 10 * s, []time.Duration{0, 9 * s},
			[]want{{lifecycle.Drained, 10 * s}, {lifecycle.Expired, 20 * s}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newRounds(t, Config{Grace: tc.grace, FallbackSleep: tc.fallback, look: tc.look(), transport: tc.helper()})
				for i, got := range c.hooks(t, tc.come...) {
					want := tc.want[i]
					// As in TestWait: a helper is tried again each second.
					if late := got.after - want.after; got.reason != string(want.reason) || late < 0 || late > 2*time.Second {
						t.Errorf("the hook that comes after %s ends with %s after %s, want %s after %s", tc.come[i], got.reason, got.after, want.reason, want.after)
					}
				}
			})
		})
	}
}

// A sidecar that ends begins no other wait for those that are held.
func TestSidecarThatEndsBeginsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, stop := context.WithCancel(t.Context())
		s := newRounds(t, Config{look: session(time.Hour), transport: helper(absent)})
		s.life = life
		time.AfterFunc(3*time.Second, stop)
		want := ending{string(lifecycle.Cancelled), 3 * time.Second}
		if got := s.hooks(t, 0, time.Second); got[0] != want || got[1] != want {
			t.Errorf("ended %s, want %s twice", fmt.Sprint(got), fmt.Sprint(want))
		}
	})
}

// What of a wait that began at zero counts for a hook that came later.
func TestRoundCounts(t *testing.T) {
	t.Parallel()
	const s = time.Second
	helper := func(r lifecycle.Reason) Result { return Result{Reason: r, Helper: true} }
	for _, tc := range []struct {
		name    string
		result  Result
		due     bool
		arrived time.Duration
		ends    time.Duration
		want    bool
	}{
		{"its own, by a helper", helper(lifecycle.NotTerminating), false, 0, s, true},
		{"its own, by nobody", Result{Reason: lifecycle.Expired}, false, 0, 24 * s, true},
		{"of a restart", helper(lifecycle.NotTerminating), false, 1, 2 * s, false},
		{"a helper's word", helper(lifecycle.Drained), false, s, 2 * s, true},
		{"a helper's deadline", helper(lifecycle.Expired), false, s, 2 * s, true},
		{"a helper's deadline, and the helper is gone", Result{Reason: lifecycle.Expired}, true, s, 2 * s, true},
		{"the sidecar ends", Result{Reason: lifecycle.Cancelled}, false, s, 2 * s, true},
		{"drained, and it has waited for the least time", Result{Reason: lifecycle.Drained}, false, s, 16 * s, true},
		{"drained, and it has not", Result{Reason: lifecycle.Drained}, false, s + 1, 16 * s, false},
		{"slept, and it has not", Result{Reason: Slept}, false, s + 1, 16 * s, false},
		{"expired, and its time is up", Result{Reason: lifecycle.Expired}, false, s, 25 * s, true},
		{"expired, and its time is not up", Result{Reason: lifecycle.Expired}, false, s + 1, 25 * s, false},
	} {
		began := time.Now()
		r := round{began: began, fallback: 15 * s, budget: 24 * s, result: tc.result, at: began.Add(tc.ends), due: tc.due}
		if got := r.counts(began.Add(tc.arrived)); got != tc.want {
			t.Errorf("%s: counts %t, want %t", tc.name, got, tc.want)
		}
	}
}
