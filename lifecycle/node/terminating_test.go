package node

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// asking is the work on a pod of which nobody has said yet whether it terminates.
func asking(grace int64) *vigil {
	return &vigil{
		drainer: &drainer{}, serving: true, confirmBy: time.Now(),
		drain: newDrain(podWithGrace(60, grace), time.Now(), false, Config{Logger: slog.New(slog.DiscardHandler)}),
	}
}

// decided is what it comes to now.
func (v *vigil) decided() lifecycle.Decision {
	now := time.Now()
	v.assume(now)
	return lifecycle.Decide(v.observe(v.counts(), now), now)
}

// Where nobody has answered in time, such as when this process stood still, a pod is
// taken for one that terminates; an answer that says no counts, however late.
func TestNoAnswerIsNoDenial(t *testing.T) {
	t.Parallel()
	for _, grace := range []int64{-1, 60} {
		v := asking(grace)
		if d := v.decided(); d.Phase == lifecycle.Released || d.Phase == lifecycle.Serving {
			t.Errorf("grace %d: %+v while nobody has said no", grace, d)
		}
		v.stopped(stopAnswer{}, time.Now())
		if d := v.decided(); (d.Reason == lifecycle.NotTerminating) != (grace < 0) {
			t.Errorf("grace %d: %+v after the API and the node have said no", grace, d)
		}
	}
}

// A drain is forgotten that began when its pod was gone already: nobody tells of its
// end again.
func TestDrainOfAGonePodIsForgotten(t *testing.T) {
	t.Parallel()
	all := newDrains(Config{Logger: slog.New(slog.DiscardHandler)}, func(_ context.Context, d *drain) {
		d.become(state{phase: lifecycle.Released, reason: lifecycle.Cancelled})
	})
	pod := podWithGrace(60, 60)
	pod.UID = "uid-1"
	all.changed(pod, true)
	if all.join(t.Context(), pod, time.Now(), false, 0) == nil {
		t.Fatal("no drain")
	}
	all.close()
	if n := len(all.byUID) + len(all.asked); n > 0 {
		t.Errorf("%d entries are left", n)
	}
}

// A hook keeps the earliest deadline that it was ever told, so the first one that a
// drain has counts the hook's own fallback sleep already.
func TestFirstDeadlineOfASwitchedOffHelper(t *testing.T) {
	t.Parallel()
	const fallback = 40 * time.Second
	deadlines := make(chan time.Time, 1)
	all := newDrains(Config{Logger: slog.New(slog.DiscardHandler)}, func(_ context.Context, d *drain) {
		_, until := d.sleepUntil()
		deadlines <- until
	})
	started := time.Now()
	all.join(t.Context(), podWithGrace(900, 900), started, false, fallback)
	if got := (<-deadlines).Sub(started); got != fallback {
		t.Errorf("the deadline was %s after the hook's start, want its fallback sleep of %s", got, fallback)
	}
	all.close()
}

// What a drain came to that was asked for at one moment is for the hooks that had begun
// by then, whenever they ask; a no of the API says nothing of those that began later.
func TestWhomTheEndIsFor(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tc := range []struct {
		name    string
		reason  lifecycle.Reason
		grace   int64
		started time.Time
		over    bool
	}{
		{"the hook of a restart, between two requests", lifecycle.NotTerminating, -1, now.Add(-time.Second), false},
		{"one that began after the API was asked", lifecycle.NotTerminating, -1, now.Add(time.Second), true},
		{"one that began before another end", lifecycle.Drained, -1, now.Add(time.Second), false},
		{"one that began after it", lifecycle.Drained, -1, now.Add(time.Hour), true},
		{"one of a pod that is on its way out", lifecycle.Drained, 60, now.Add(time.Hour), false},
		{"for everybody", lifecycle.NotTerminating, -1, time.Time{}, true},
	} {
		v := asking(tc.grace)
		v.asks(now)
		v.become(state{phase: lifecycle.Released, reason: tc.reason})
		v.drain.end = now.Add(2 * time.Second)
		if got := v.over(tc.started); got != tc.over {
			t.Errorf("%s: over %t", tc.name, got)
		}
	}
}
