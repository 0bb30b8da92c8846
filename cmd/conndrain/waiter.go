package main

import (
	"context"
	"fmt"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests"
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
	// judge is nil unless requests are waited for, and say is then told what a person
	// should know; it must not block.
	judge *judge
	say   func(string)
	// list makes the result name the sessions that were left.
	list bool
	// show is called with each new state of things; it must not block.
	show func(status)

	opening   <-chan opened // nil once it has told
	watch     watch
	lastKnown conntrack.Counts
	everKnown bool
	peak      int // of the sessions that were seen
}

// status is where a wait stands.
type status struct {
	phase  lifecycle.Phase
	counts conntrack.Counts
	// socketsPending is true while the sockets here have yet to confirm them.
	socketsPending bool
	left           time.Duration
	// fault is why the counts are unknown, if the kernel could not be asked.
	fault error
	// doing counts the connections by what they are doing, where requests are waited
	// for; nil where that is not so or not known.
	doing map[requests.Class]int
	// blind is why requests cannot be told, where they are waited for.
	blind string
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
	defer w.judge.start(work)()

	w.opening = openWatch(work, w.open)
	var changes <-chan struct{}
	// confirmed says that the zero that is seen was confirmed once.
	confirmed := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		counts := w.counts()
		pending := w.watch != nil && w.sockets.keepUp(work, counts, w.watch.Sessions, now)
		pending = pending || w.judge.pending()
		if certain(counts, pending) {
			w.lastKnown, w.everKnown = w.all(counts), true
		}
		seen := lifecycle.Observation{
			WithdrawnAt: start, Deadline: deadline, Policy: w.policy,
			SocketsPending: pending, Cancelled: ctx.Err() != nil,
		}
		decision := w.decide(seen, counts, now)
		confirmed = confirmed && none(counts) && !pending
		ready := decision.Reason == lifecycle.Drained || decision.Phase == lifecycle.Settling && !confirmed
		switch {
		case ready && now.Before(deadline):
			counts = w.confirm(ctx, deadline)
			confirmed = none(counts)
			now = time.Now()
			seen.Cancelled = ctx.Err() != nil
			decision = w.decide(seen, counts, now)
		case decision.Reason == lifecycle.Drained && !confirmed:
			counts.Known = false // there is no time left to make sure
			decision = w.decide(seen, counts, now)
		}
		if decision.Phase == lifecycle.Released {
			return w.result(decision.Reason, now.Sub(start), counts, pending), nil
		}
		w.judge.allow(decision.WhenQuiet, w.sessions())
		w.show(status{decision.Phase, w.all(counts), pending, deadline.Sub(now), w.fault(counts), w.doing(), w.blind()})

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
		case <-w.judge.changed():
		case m := <-w.judge.went():
			m, lasts := w.judge.newest(ctx, m, deadline)
			counts, now := w.counts(), time.Now()
			if lasts && ctx.Err() == nil && now.Before(deadline) && w.decide(seen, counts, now).WhenQuiet {
				r := w.result(lifecycle.Drained, now.Sub(start), counts, false)
				r.inFlight, r.untold = m.Cut, m.Untold
				return r, nil
			}
		case o := <-w.opening:
			w.opening = nil
			if o.err != nil {
				return result{}, o.err
			}
			w.watch = o.watch
			if d, ok := o.watch.(*doubtful); ok {
				w.watch = d.watch
				w.say(fmt.Sprintf("nobody listens on port %d here: only what a rule of this machine leads there is waited for", d.port))
			}
			if a, ok := o.watch.(*alone); ok {
				w.sockets = nil // it looks at them itself
				w.say("source: sockets: this machine's own sockets decide alone, as they can (" + a.why.Error() + ")")
				if len(a.scope.Ports) > 0 {
					w.say(ownPorts)
				}
			}
			changes = w.watch.Changes()
		case report := <-w.sockets.reported():
			if w.sockets.take(report, w.watch); w.sockets.off {
				w.opening = openWatch(work, w.instead(w.watch))
				w.watch, changes = nil, nil
			}
		}
	}
}

// none says that nothing is left, as far as it is known.
func none(c conntrack.Counts) bool { return c.Known && c.Blocking() == 0 && c.Opening == 0 }

// decide is lifecycle.Decide for these counts.
func (w *waiter) decide(o lifecycle.Observation, c conntrack.Counts, now time.Time) lifecycle.Decision {
	o.Known, o.Blocking, o.Opening, o.LastNew = c.Known, c.Blocking(), c.Opening, c.LastNew
	if w.judge != nil {
		o.Blocking, o.Requests = 0, max(o.Blocking, w.judge.connected())
	}
	return lifecycle.Decide(o, now)
}

// all are the counts with the connections that only the judge knows of.
func (w *waiter) all(c conntrack.Counts) conntrack.Counts {
	if c.Known {
		c.Open += max(0, w.judge.connected()-c.Blocking())
		w.peak = max(w.peak, c.Peak, c.Blocking())
		c.Peak = w.peak
	}
	return c
}

// confirm asks once more before a zero is acted on. It blocks for some
// milliseconds, at most until the deadline or until ctx ends; the counts are then
// unknown.
func (w *waiter) confirm(ctx context.Context, deadline time.Time) conntrack.Counts {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	confirmed := make(chan conntrack.Counts, 1)
	go func() {
		c, err := w.watch.Confirm(ctx)
		if err != nil {
			c.Known = false
		}
		if _, looks := w.watch.(*alone); !looks {
			w.judge.confirm(ctx)
		}
		confirmed <- c
	}()
	select {
	case c := <-confirmed:
		return c
	case <-ctx.Done():
		return conntrack.Counts{}
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
	return w.watch.Counts()
}

// sessions are those that are known, where requests are waited for.
func (w *waiter) sessions() []conntrack.Session {
	if w.judge == nil || w.watch == nil {
		return nil
	}
	return w.watch.Sessions()
}

// doing counts the connections by what they are doing, or is nil.
func (w *waiter) doing() map[requests.Class]int {
	if w.judge == nil {
		return nil
	}
	doing, _, known := w.judge.classes()
	if !known || w.judge.blind() != "" {
		return nil
	}
	return doing
}

// blind is why requests cannot be told, or empty.
func (w *waiter) blind() string {
	if w.judge == nil {
		return ""
	}
	return w.judge.blind()
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
		counts: w.all(counts), lastKnown: w.lastKnown, everKnown: w.everKnown,
		socketsPending: pending, fault: w.fault(counts),
	}
	if w.judge != nil {
		r.requests = true
		if doing, holding, known := w.judge.classes(); known {
			r.doing, r.inFlight = doing, holding
		}
		r.blind = w.judge.blind()
		if reason == lifecycle.Drained {
			r.inFlight = 0
		}
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
