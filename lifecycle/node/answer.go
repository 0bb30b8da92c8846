package node

import (
	"context"
	"slices"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// await blocks until the drain is released, the hook is asked for a look or there is
// something else for it, but not for longer than wait or ctx, and returns the answer.
func (d *drain) await(ctx context.Context, wait time.Duration, c *caller) lifecycle.DrainAnswer {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	asked := false
	for waits := true; waits; {
		news := d.waits(c)
		if news == nil {
			break
		}
		select {
		case <-news:
			continue
		case <-d.released:
		case <-c.look:
			asked = true
		case <-timer.C:
		case <-ctx.Done():
		}
		waits = false
	}
	answer := d.answerTo(c, time.Now())
	answer.Look = asked && !answer.Released()
	return answer
}

// waits returns nil where there is something for the hook now, and else what is closed
// when there may be.
func (d *drain) waits(c *caller) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stale(c) || d.notice.owed(c) {
		return nil
	}
	return d.news
}

// answerTo is the answer for a hook, with what it alone is told.
func (d *drain) answerTo(c *caller, now time.Time) lifecycle.DrainAnswer {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.answerLocked(now)
	if a.Released() {
		return a
	}
	if c.looks && c.does(lifecycle.CanJudge) {
		a.WhenQuiet = d.quiet
	}
	order := d.notice.owed(c)
	if order {
		a.Notify = d.notice.what
	}
	d.notice.answered(c, a.Mark, order, now)
	return a
}

// met notes what the hook is able to do.
func (d *drain) met(c *caller) {
	d.mu.Lock()
	for _, what := range c.can {
		if !slices.Contains(d.notice.can, what) {
			d.notice.can = append(d.notice.can, what)
		}
	}
	d.mu.Unlock()
	d.notify()
}

// answer is what any hook is told.
func (d *drain) answer(now time.Time) lifecycle.DrainAnswer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.answerLocked(now)
}

func (d *drain) answerLocked(now time.Time) lifecycle.DrainAnswer {
	c := d.state.counts
	a := lifecycle.DrainAnswer{Phase: d.state.phase.String(), Reason: d.state.reason, Source: c.Source.String(), Mark: marks.mark(now)}
	// A deadline by a grace period that is not certain yet would bind the hook.
	if d.confirmed {
		left := max(0, d.deadline.Sub(now)).Seconds()
		a.RemainingSeconds = &left
	}
	if c.Known {
		a.Open, a.Idle, a.Lost = &c.Open, &c.Idle, &c.Lost
		a.Cut = d.state.cut
	}
	return a
}
