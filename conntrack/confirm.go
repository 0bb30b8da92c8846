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
		err := w.askAll()
		if err == nil {
			break
		}
		if sleepErr := sleep(ctx, askAgainAfter); sleepErr != nil {
			return Counts{}, errors.Join(sleepErr, err)
		}
	}
	for {
		if c, ok := w.upToDate(); ok {
			return c, nil
		}
		if err := sleep(ctx, confirmEvery); err != nil {
			return Counts{}, err
		}
	}
}

// upToDate returns the counts if at this moment no event is waiting to be taken
// in, or nobody listens any more.
func (w *Watch) upToDate() (Counts, bool) {
	r := w.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if !w.closed && r.fault == nil && (r.listener == nil || !r.listener.idle()) {
		return Counts{}, false
	}
	return w.countNow(), true
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
