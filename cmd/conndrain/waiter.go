package main

import (
	"context"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// waiter waits for the last session's end. It is used once and by one
// goroutine.
type waiter struct {
	open    watchOpener
	policy  lifecycle.Policy
	timeout time.Duration
	// sockets is nil unless the sockets of this machine have a say. openAlone opens
	// a watch without them, where they turn out not to be had.
	sockets   *sockets
	openAlone watchOpener
	// list makes the result name the sessions that were left.
	list bool
	// show is called with each new state of things; it must not block.
	show func(status)

	opening   <-chan opened // nil once it has told
	watch     watch
	lastKnown conntrack.Counts
	everKnown bool
}

// status is where a wait stands.
type status struct {
	phase  lifecycle.Phase
	counts conntrack.Counts
	left   time.Duration
	// fault is why the counts are unknown, if the kernel could not be asked.
	fault error
}

// progressEvery is how often a wait looks up when nothing happens, so that what
// time alone changes is seen and shown.
const progressEvery = time.Second

// After a change a wait pauses for lookCost times as long as it takes to look at
// all sessions, but not longer than lookPause, so that a storm of changes costs
// little.
const (
	lookCost  = 4
	lookPause = 20 * time.Millisecond
)

// wait blocks until the last session has ended and the quiet time is over, until
// the timeout, or until the context ends; then the reason is Cancelled. Neither
// a kernel nor a socket look that hangs can make it block longer. The error is
// why the sessions cannot be watched at all. Call close afterwards.
func (w *waiter) wait(ctx context.Context) (result, error) {
	start := time.Now()
	deadline := start.Add(w.timeout)
	// What hangs is left behind at the end: it must not hold the answer.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	w.opening = openWatch(work, w.open)
	var changes <-chan struct{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		counts := w.counts()
		pending := w.watch != nil && w.sockets.keepUp(work, counts, w.watch.Sessions, now)
		decision := lifecycle.Decide(lifecycle.Observation{
			WithdrawnAt:    start,
			Deadline:       deadline,
			Policy:         w.policy,
			Known:          counts.Known,
			Blocking:       counts.Blocking(),
			Opening:        counts.Opening,
			LastNew:        counts.LastNew,
			SocketsPending: pending,
			Cancelled:      ctx.Err() != nil,
		}, now)
		if decision.Phase == lifecycle.Released {
			return w.result(decision.Reason, now.Sub(start), counts, pending), nil
		}
		w.show(status{decision.Phase, counts, deadline.Sub(now), w.fault(counts)})

		pause := min(lookCost*time.Since(now), lookPause)
		timer.Reset(min(decision.Next.Sub(now), progressEvery, w.sockets.rest(now)))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-changes:
			// More of them follow where thousands of sessions end.
			select {
			case <-time.After(pause):
			case <-timer.C:
			case <-ctx.Done():
			}
		case o := <-w.opening:
			w.opening = nil
			if o.err != nil {
				return result{}, o.err
			}
			w.watch = o.watch
			changes = w.watch.Changes()
		case report := <-w.sockets.reported():
			if w.sockets.take(report, w.watch); w.sockets.off {
				w.opening = openWatch(work, w.instead(w.watch))
				w.watch, changes = nil, nil
			}
		}
	}
}

// instead opens a watch without sockets after closing the one with them, which
// would wait for their report for ever.
func (w *waiter) instead(of watch) watchOpener {
	return func(ctx context.Context) (watch, error) {
		_ = of.Close() // nothing of it is needed
		return w.openAlone(ctx)
	}
}

// counts are the current ones; unknown before there is a watch.
func (w *waiter) counts() conntrack.Counts {
	if w.watch == nil {
		return conntrack.Counts{}
	}
	c := w.watch.Counts()
	if c.Known {
		w.lastKnown, w.everKnown = c, true
	}
	return c
}

// fault is why the counts are unknown, or nil.
func (w *waiter) fault(c conntrack.Counts) error {
	if c.Known || w.watch == nil {
		return nil
	}
	return w.watch.Err()
}

func (w *waiter) result(reason lifecycle.Reason, waited time.Duration, counts conntrack.Counts, pending bool) result {
	r := result{
		reason: reason, waited: waited,
		counts: counts, lastKnown: w.lastKnown, everKnown: w.everKnown,
		socketsPending: pending, fault: w.fault(counts),
	}
	if w.list && reason == lifecycle.Expired && w.watch != nil {
		for _, s := range w.watch.Sessions() {
			if s.State == conntrack.Open || s.State == conntrack.Lost {
				r.left = append(r.left, s)
			}
		}
	}
	return r
}

// close ends the watch, and waits for a look at the sockets that is under way.
func (w *waiter) close() {
	briefly(func() {
		closeWatch(w.watch, w.opening)
		w.sockets.join()
	})
}
