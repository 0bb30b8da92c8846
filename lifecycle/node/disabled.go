package node

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/lifecycle"
)

// errDisabled is why nothing is known of sessions on a helper that is switched off.
var errDisabled = errors.New("conndrain is switched off on this node (CONNDRAIN_DISABLE)")

// sleep is what a drain comes to on a helper that is switched off: it blocks until
// the fallback sleep of the pod's hooks has passed since the first one's start, or
// the pod's budget has, or a person or ctx ends it. Nothing is asked of the kernel
// or of the API.
func (r *drainer) sleep(ctx context.Context, d *drain) {
	d.sight.notes(errDisabled)
	pod, until := d.sleepUntil()
	r.events.disabled(pod, time.Until(until))
	d.become(state{phase: lifecycle.Draining})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		_, until := d.sleepUntil()
		by, why := d.releasedBy()
		now := time.Now()
		waited := d.waited(now)
		switch {
		case by != "":
			d.become(state{phase: lifecycle.Released, reason: lifecycle.ReleasedByUser})
			r.tally.released(lifecycle.ReleasedByUser, waited)
			r.events.released(pod, d.now().counts, lifecycle.Leaving{}, nil, waited, time.Time{}, by, why)
			return
		case !now.Before(until):
			d.become(state{phase: lifecycle.Released, reason: lifecycle.Disabled})
			r.tally.released(lifecycle.Disabled, waited)
			return
		}
		timer.Reset(until.Sub(now))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-d.wake:
		}
	}
}

// wantsSleep takes in how long a hook of the pod sleeps where nobody can tell it
// about sessions; 0 is a hook that does not say. Of several the longest counts.
func (d *drain) wantsSleep(fallback time.Duration) {
	if fallback <= 0 {
		fallback = lifecycle.DefaultFallbackSleep
	}
	d.mu.Lock()
	longer := fallback > d.fallback
	d.fallback = max(d.fallback, fallback)
	d.mu.Unlock()
	if longer {
		d.notify()
	}
}

// sleepUntil is when the sleep ends, which is the drain's deadline as well.
func (d *drain) sleepUntil() (*corev1.Pod, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.confirmed = true
	budget, _ := d.settings.Budget(graceOf(d.pod), d.maxDrain) // whether the reserve is sound is told when drains are on
	d.deadline = d.first.Add(min(budget, cmp.Or(d.fallback, lifecycle.DefaultFallbackSleep)))
	return d.pod, d.deadline
}
