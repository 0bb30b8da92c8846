package conntrack

import (
	"context"
	"log/slog"
	"net/netip"
	"time"
)

const (
	// joinPause is how long after joining the events a snapshot begins: a flow
	// whose first packet was on its way before the join never emits an event.
	joinPause = 100 * time.Millisecond
	// walkEvery is the least time between the beginnings of two walks.
	walkEvery = time.Second
	// walkFactor is how many times the cost of a walk passes before one that is
	// only for what may have come back.
	walkFactor = 20
)

// walker takes the snapshots of all hosts.
type walker struct {
	e *engine
	// began is when the latest walk began, cost how long it took.
	began time.Time
	cost  time.Duration
}

// due is one walk to come: when, for which addresses, and since when their events
// are heard.
type due struct {
	at     time.Time
	wishes []wish
	joined map[netip.Addr]time.Time
}

// walkLoop takes snapshots for the hosts that need one until ctx ends. Hosts that
// come at the same time share a walk.
func (e *engine) walkLoop(ctx context.Context) error {
	w := &walker{e: e}
	for {
		next, ok := w.next()
		if !ok {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-e.r.walk:
			}
			continue
		}
		if pause := time.Until(next.at); pause > 0 {
			// Whoever comes meanwhile may need it earlier, or takes part.
			t := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				t.Stop()
				return ctx.Err()
			case <-e.r.walk:
			case <-t.C:
			}
			t.Stop()
			continue
		}
		if err := w.walk(ctx, next); err != nil {
			return err
		}
	}
}

// next returns the walk that is needed first.
func (w *walker) next() (due, bool) {
	r := w.e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	earliest := time.Time{}
	if !w.began.IsZero() {
		earliest = w.began.Add(walkEvery)
	}
	relaxed := w.began.Add(max(walkEvery, walkFactor*w.cost))
	at := make(map[netip.Addr]time.Time)
	next := due{joined: make(map[netip.Addr]time.Time)}
	for addr, h := range r.hosts {
		var t time.Time
		switch {
		case !h.synced:
			t = later(earliest, h.joined.Add(joinPause))
		case h.lost:
			t = relaxed
		case r.limits.events == 0: // nothing else tells of new flows
			t = relaxed
		default:
			continue
		}
		at[addr] = t
		if next.at.IsZero() || t.Before(next.at) {
			next.at = t
		}
	}
	if len(at) == 0 {
		return due{}, false
	}
	until := later(next.at, time.Now())
	for addr, t := range at {
		if !t.After(until) {
			next.wishes = append(next.wishes, r.hosts[addr].wish())
			next.joined[addr] = r.hosts[addr].joined
		}
	}
	return next, true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// walk takes one snapshot. A fault is not the end: what the walk was for stays
// unknown, and the next try follows. Only ctx ends the loop.
func (w *walker) walk(ctx context.Context, d due) error {
	r := w.e.r
	w.began = time.Now()
	w.note(d, func(h *host) { h.lost = false })
	err := r.snapshot(ctx, d.wishes, func(es []entry, asked, answered time.Time) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i := range es {
			r.concerned(&es[i], func(h *host) { h.observe(&es[i], false, asked, answered) })
		}
	})
	w.cost = time.Since(w.began)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.mu.Lock()
	r.walkFault = err
	r.mu.Unlock()
	if err != nil {
		r.log.LogAttrs(ctx, slog.LevelWarn, "no snapshot, trying again", slog.Any("err", err))
		w.note(d, func(h *host) { h.lost = h.lost || h.synced })
		return nil
	}
	r.noteSnapshot(w.cost)
	w.note(d, func(h *host) { h.inStepSince(w.began) })
	wake(r.sweep)
	return nil
}

// note calls f for each host of the walk that has lost no event since the walk
// was decided.
func (w *walker) note(d due, f func(*host)) {
	r := w.e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	for addr, joined := range d.joined {
		if h := r.hosts[addr]; h != nil && h.joined.Equal(joined) {
			f(h)
			h.notify()
		}
	}
}

// inStepSince notes a whole snapshot that began then.
func (h *host) inStepSince(began time.Time) {
	h.synced, h.walked = true, began
	h.deaf = h.limits.events == 0
	for _, w := range h.watches {
		if w.baseline.IsZero() && w.synced() {
			w.baseline = time.Now()
		}
	}
}
