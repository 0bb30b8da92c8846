package node

import (
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// freedom finds out from when on nothing holds a pod, and what came to it after
// its withdrawal. It is used by one goroutine.
type freedom struct {
	// heard is when the sessions last changed.
	heard time.Time
	// held says that a session has held the pod, since that the last one's end is
	// known to be.
	held  bool
	since time.Time
	// waits is how long the latest phase lasts, which ends by time alone.
	waits time.Time
	// created are the new sessions that were counted so far.
	created int
}

// changed notes that the kernel told something.
func (f *freedom) changed(now time.Time) { f.heard = now }

// saw takes in what is known now, and how many sessions hold. The end of the last session is when the change
// that showed it was heard, not when it was looked at.
func (f *freedom) saw(known bool, holding int, now time.Time) {
	switch {
	case !known || holding > 0:
		f.held = f.held || holding > 0
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = now
		if !f.heard.IsZero() {
			f.since = f.heard
		}
	}
	f.heard = time.Time{}
}

// decided takes in a decision: until when the pod is held by time alone.
func (f *freedom) decided(d lifecycle.Decision) {
	if d.Phase == lifecycle.Settling {
		f.waits = d.Next
	}
}

// due is from when on nothing has held a pod that is released as drained now; ok is
// false for one that no session has ever held.
func (f *freedom) due(withdrawnAt, now time.Time) (_ time.Time, ok bool) {
	due := later(f.since, later(f.waits, withdrawnAt))
	if due.After(now) {
		due = now
	}
	return due, f.held && !f.since.IsZero()
}

// arrived returns how many sessions began since the last call, of a pod that no
// slice sends new traffic to.
func (f *freedom) arrived(c conntrack.Counts, routed bool) int {
	n := c.New - f.created
	f.created = c.New
	if routed || n < 0 { // another watch counts from 0 again
		return 0
	}
	return n
}
