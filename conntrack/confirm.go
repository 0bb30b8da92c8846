package conntrack

import (
	"context"
	"errors"
	"time"
)

// confirmEvery is the pause between looks whether a zero can be confirmed.
const confirmEvery = time.Millisecond

// Confirm returns counts that rest on nothing older than the call: it asks the
// kernel again for every known flow, waits until every event that the kernel had
// told by then is taken in, and where the kernel tells no events takes a new
// snapshot. A zero of Counts is what is known; act on it only if Confirm says the
// same. It blocks for some milliseconds, for up to seconds where a snapshot is
// needed, and at most until ctx ends, with ctx's error then.
func (w *Watch) Confirm(ctx context.Context) (Counts, error) {
	if err := w.hear(ctx); err != nil {
		return Counts{}, err
	}
	for {
		if err := w.askAll(); err != nil {
			if sleepErr := sleep(ctx, askAgainAfter); sleepErr != nil {
				return Counts{}, errors.Join(sleepErr, err)
			}
			continue
		}
		c, done, err := w.upToDate(ctx)
		if err != nil || done {
			return c, err
		}
	}
}

// upToDate waits until no event is waiting to be taken in, or nobody listens any
// more, and returns the counts of that moment. It is not done where an event said
// something that the kernel has to be asked about.
func (w *Watch) upToDate(ctx context.Context) (Counts, bool, error) {
	r := w.reader
	for {
		r.mu.Lock()
		over := w.unheard()
		if over || r.listener != nil && r.listener.idle() {
			c, done := w.countNow(), over || !w.toVerify()
			r.mu.Unlock()
			return c, done, nil
		}
		r.mu.Unlock()
		if err := sleep(ctx, confirmEvery); err != nil {
			return Counts{}, false, err
		}
	}
}

// unheard says that nobody listens to events for the watch now, so that its counts
// are unknown. The mutex is held.
func (w *Watch) unheard() bool { return w.closed || w.reader.fault != nil }

// toVerify says whether an event left a flow to be asked for. The mutex is held.
func (w *Watch) toVerify() bool {
	for _, h := range w.hosts {
		for _, f := range h.flows {
			if f.verify {
				return true
			}
		}
	}
	return false
}

// hear makes sure that new flows cannot have come unheard: if events are or were
// switched off, it waits for a snapshot that begins now.
func (w *Watch) hear(ctx context.Context) error {
	r := w.reader
	l, err := r.kernel.limits()
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.setLimits(l)
	deaf := false
	for _, h := range w.hosts {
		deaf = deaf || h.deaf
	}
	if deaf {
		now := time.Now()
		for _, h := range w.hosts {
			h.synced, h.joined = false, now
		}
		wake(r.walk)
	}
	r.mu.Unlock()
	for deaf {
		if err := sleep(ctx, confirmEvery); err != nil {
			return err
		}
		r.mu.Lock()
		deaf = !w.closed && !w.synced()
		r.mu.Unlock()
	}
	return nil
}

// askAll asks the kernel for all known flows of the watch.
func (w *Watch) askAll() error {
	r := w.reader
	var round asking
	r.mu.Lock()
	for _, h := range w.hosts {
		for _, f := range h.flows {
			round.add(h, f)
		}
	}
	r.mu.Unlock()
	if len(round.questions) == 0 {
		return nil
	}
	a, err := r.kernel.asker()
	if err != nil {
		return err
	}
	return errors.Join(round.put(a, r.take), a.close())
}
