package hook

import (
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// round is one wait of a sidecar, for any number of hooks.
type round struct {
	began time.Time
	// fallback and budget are how long a hook without a helper waits at the least, and at
	// the most.
	fallback, budget time.Duration
	ended            chan struct{}

	// What follows does not change any more once it has ended.

	result Result
	at     time.Time // its end
	// due is set where the time was up that a helper had told.
	due bool
	// next is the wait of those for whom this one's end does not count; nil where there are
	// none.
	next *round
}

func newRound(w *waiter) *round {
	return &round{
		began: w.start, fallback: w.FallbackSleep, budget: lifecycle.Budget(w.Grace, 0),
		ended: make(chan struct{}),
	}
}

// counts says whether its end is one for a hook that came then. That a pod does not
// terminate rests on a look from after the wait's beginning, and the pod may have been
// deleted since. Without a helper the time ran from somebody else's beginning; the hooks
// of one kubelet come so close together that the time of one is mostly that of all. A
// helper's deadline is the pod's, whoever was told it.
func (r *round) counts(arrived time.Time) bool {
	waited := r.at.Sub(arrived)
	switch {
	case !arrived.After(r.began), r.due, r.result.Reason == lifecycle.Cancelled:
		return true
	case r.result.Helper:
		return r.result.Reason != lifecycle.NotTerminating
	case r.result.Reason == lifecycle.Expired:
		return waited >= r.budget
	}
	return waited >= min(r.fallback, r.budget)
}
