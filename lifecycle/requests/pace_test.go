package requests

import (
	"testing"
	"time"
)

// verdict is the one at the end of the steps.
func verdict(steps []step) Verdict {
	l, c := newLine(1), New()
	classes(Wide, c, l, steps)
	return c.Look(time.Unix(1000, 0).Add(end(steps)+lookEvery), []Figures{l.at(end(steps) + lookEvery)})[0]
}

func end(steps []step) (all time.Duration) {
	for _, s := range steps {
		all += s.after
	}
	return all
}

// How long a request has gone on is never told shorter than it is, and not by much
// longer; whether it ever rests between two does not matter.
func TestPace(t *testing.T) {
	t.Parallel()
	keepAlive := repeat(6, request(pause, 100), answer(10*ms, 300))
	closed := repeat(20, request(0, 100), answer(30*ms, 300))
	chunks := repeat(6, request(pause, 100), answer(10*ms, 200), answer(300*ms, 200))
	with := func(steps []step, more ...step) []step { return append(append([]step{}, steps...), more...) }
	for _, tc := range []struct {
		name       string
		steps      []step
		age        time.Duration // Endless where its beginning was not seen
		alternates bool
	}{
		{"the first request", []step{request(pause, 100), nothing(400 * ms)}, 400 * ms, false},
		{"a request after others", with(keepAlive, request(pause, 100), nothing(400*ms)), 400 * ms, true},
		{"a request of a client without pauses", with(closed, request(0, 100), nothing(400*ms)), 400 * ms, true},
		{"an upload", with(keepAlive, request(pause, 100), request(300*ms, 100), request(300*ms, 100)), 600 * ms, true},
		{"a body that was asked for", with(keepAlive, request(pause, 100), answer(100*ms, 25), request(300*ms, 1000), nothing(100*ms)), 500 * ms, true},
		{"a download", with(keepAlive, request(pause, 100), answer(300*ms, 9000), answer(20*ms, 9000), answer(20*ms, 9000)), 340 * ms, true},
		{"an answer that pauses", with(chunks, request(pause, 100), answer(10*ms, 200), nothing(100*ms)), 110 * ms, false},
		{"after one other", with(keepAlive[:2], request(pause, 100), nothing(50*ms)), 50 * ms, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := verdict(tc.steps)
			if got.Request < tc.age || got.Request > tc.age+3*lookEvery || got.Alternates != tc.alternates {
				t.Errorf("%s, alternates %t; want %s, %t", got.Request, got.Alternates, tc.age, tc.alternates)
			}
		})
	}
}

// Whoever comes in the middle of a request knows nothing of its beginning.
func TestPaceJoinsInTheMiddle(t *testing.T) {
	t.Parallel()
	l, c := newLine(1), New()
	l.in(0, 100)
	for at := time.Duration(0); at < time.Second; at += lookEvery {
		if v := c.Look(time.Unix(1000, 0).Add(at), []Figures{l.at(at)})[0]; v.Request != Endless || v.Alternates {
			t.Fatalf("%+v", v)
		}
	}
}

// The kernel tells of a silence before the first look, too.
func TestSilenceBeforeTheFirstLook(t *testing.T) {
	t.Parallel()
	l := newLine(1)
	l.in(0, 100)
	l.out(time.Second, 300)
	v := New().Look(time.Unix(1000, 0), []Figures{l.at(time.Minute)})[0]
	if v.Wide != Unknown || v.Silent != 59*time.Second {
		t.Errorf("%+v, want 59 s of silence", v)
	}
}

// An answer that pauses on one connection says nothing of the requests on another one.
func TestWhichConnectionsAlternate(t *testing.T) {
	t.Parallel()
	c := New()
	short, paused := newLine(1), newLine(2)
	var v []Verdict
	at := time.Duration(0)
	look := func() {
		v = c.Look(time.Unix(1000, 0).Add(at), []Figures{short.at(at), paused.at(at)})
		at += lookEvery
	}
	rest := func() {
		for range 5 {
			look()
		}
	}
	rest()
	for range enough + 1 {
		for _, l := range []*line{short, paused} {
			l.in(at, 100)
			look()
			l.out(at, 300)
		}
		rest()
	}
	if !v[0].Alternates || !v[1].Alternates {
		t.Errorf("before the pause: %t and %t", v[0].Alternates, v[1].Alternates)
	}
	paused.out(at, 300)
	rest()
	if !v[0].Alternates || v[1].Alternates {
		t.Errorf("with a pause on the second: %t and %t, want that of the first alone", v[0].Alternates, v[1].Alternates)
	}
}

// A download that pauses at very many places does not keep a port from learning where short answers end.
func TestPlacesOfPausesAreNoEnds(t *testing.T) {
	t.Parallel()
	p := newPort(Wide)
	for i := range uint64(1000) {
		p.wentOn(pair{100, i, 1}, true, true)
	}
	if got := p.needs(); got != enough {
		t.Errorf("an answer has to end %d times after 1000 pauses, want %d", got, enough)
	}
	for i := range uint64(10 * placesForOne) {
		p.ended(turn{pair{i, i, 2}, 1}, basis{true, true}, 0)
	}
	if got, want := p.needs(), 10; got != want {
		t.Errorf("an answer has to end %d times where it did at many places, want %d", got, want)
	}
}
