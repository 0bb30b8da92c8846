package conntrack

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"
)

const (
	// sweepFactor is how many times the cost of a sweep passes before the next, so
	// that asking, and what follows from the answers, takes less than 10 % of a CPU.
	sweepFactor = 18
	// sweepMin and sweepMax bound the time between sweeps of the flows whose end
	// only a look can show.
	sweepMin = 20 * time.Millisecond
	sweepMax = time.Second
	// slowSweep is the least time between looks at flows whose end an event will
	// show, and at those that have ended but may come back.
	slowSweep = time.Second
	// notifyEvery makes watches judge again, because time alone ends some
	// sessions.
	notifyEvery = 250 * time.Millisecond
	// askAgainAfter is the pause after the kernel could not be asked.
	askAgainAfter = 200 * time.Millisecond
)

// sweeper asks the kernel again for the flows that are known.
type sweeper struct {
	asking
	e                  *engine
	asker              asker
	nextFast, nextSlow time.Time
	notified           time.Time
	// known and urgent count the flows at the last look, woken says that there may
	// be others by now.
	known, urgent int
	woken         bool
}

// sweepLoop asks again until ctx ends. While no flow is known it only reads the
// kernel's settings, once a second.
func (e *engine) sweepLoop(ctx context.Context) error {
	s := &sweeper{e: e}
	defer s.close()
	for {
		s.sweep(ctx)
		if err := s.rest(ctx); err != nil {
			return err
		}
	}
}

// rest waits until the next sweep is due or somebody wakes the sweeper.
func (s *sweeper) rest(ctx context.Context) error {
	t := time.NewTimer(time.Until(s.next()))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.e.r.sweep:
		s.woken = true
	case <-t.C:
	}
	return nil
}

// next is when the next sweep is due. While there is nothing to ask, the kernel's
// settings are read all the same.
func (s *sweeper) next() time.Time {
	if s.urgent > 0 || s.woken {
		return earlier(s.nextFast, s.nextSlow)
	}
	return s.nextSlow
}

// sweep asks for what is due.
func (s *sweeper) sweep(ctx context.Context) {
	now := time.Now()
	fast, slow := !now.Before(s.nextFast), !now.Before(s.nextSlow)
	if !s.collect(fast, slow) {
		return
	}
	if s.known == 0 {
		s.close() // no socket while there is nothing to ask
	}
	// What counts is the CPU's time. On a busy machine a sweep may be kept waiting
	// in its middle, and the next must not come later for that.
	runtime.LockOSThread()
	began := threadTime()
	err := s.ask()
	cost := threadTime() - began
	runtime.UnlockOSThread()
	if err != nil && ctx.Err() == nil {
		s.e.r.log.LogAttrs(ctx, slog.LevelWarn, "known sessions cannot be asked for, trying again", slog.Any("err", err))
		s.close()
		cost = max(cost, askAgainAfter/sweepFactor)
	}
	s.schedule(fast, slow, cost, time.Since(now))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// schedule sets when the next sweeps are due. No end may be missed: the shorter
// of the states that a flow ends in must be seen at least once.
func (s *sweeper) schedule(fast, slow bool, cost, took time.Duration) {
	r := s.e.r
	now := time.Now()
	pause := max(sweepFactor*cost, sweepMin)
	if slow {
		s.nextSlow = now.Add(max(pause, slowSweep))
		s.refreshLimits()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if fast {
		shortest := min(r.limits.tcpClose, r.limits.tcpTimeWait)
		s.nextFast = now.Add(max(min(pause, sweepMax, shortest*2/5), sweepMin/4))
	}
	if len(s.questions) > 0 {
		r.stats.Sweeps++
		r.stats.LastSweep, r.stats.LastSweepFlows = took, len(s.questions)
	}
	if now.Sub(s.notified) >= notifyEvery {
		s.notified = now
		for _, h := range r.hosts {
			h.notify()
		}
	}
}

// refreshLimits reads the kernel's settings again: somebody may have changed
// them.
func (s *sweeper) refreshLimits() {
	r := s.e.r
	l, err := r.kernel.limits()
	if err != nil {
		return // the last known ones stay
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setLimits(l)
}

// setLimits takes over the kernel's settings. Without events nothing tells of new
// flows: then only walks do. The mutex is held.
func (r *Reader) setLimits(l limits) {
	r.limits = l
	for _, h := range r.hosts {
		h.limits = l
		h.deaf = h.deaf || l.events == 0
	}
	if l.events == 0 {
		wake(r.walk)
	}
}

// collect gathers the questions that are due. It returns false if it did not even
// have to look: a flood of events must not make it look at every flow each time.
func (s *sweeper) collect(fast, slow bool) bool {
	r := s.e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	verify := false
	for _, h := range r.hosts {
		verify = verify || h.verify
	}
	if !fast && !slow && !verify {
		return false
	}
	s.clear()
	before := s.urgent
	s.known, s.urgent = 0, 0
	s.woken = s.woken && !fast && !slow
	now := time.Now()
	for _, h := range r.hosts {
		h.verify = false
		s.known += len(h.flows)
		for _, f := range h.flows {
			urgent := h.urgent(f, now)
			if urgent {
				s.urgent++
			}
			if f.verify || urgent && fast || !urgent && slow {
				s.add(h, f)
			}
		}
	}
	s.e.resting.Store(s.urgent == 0)
	if s.urgent < before {
		s.notified = time.Time{} // some session has ended by time alone
	}
	return true
}

// urgent says whether only a look can show how the flow goes on.
func (h *host) urgent(f *flow, now time.Time) bool {
	// A datagram session has no end that could be announced.
	if f.young && h.limits.events != 0 && f.gone.IsZero() && f.proto != UDP {
		return false
	}
	state := f.judge(now, rules{limits: h.limits}, false)
	return state != Over && state != 0
}

// ask puts the questions to the kernel and takes in the answers.
func (s *sweeper) ask() error {
	if len(s.questions) == 0 {
		return nil
	}
	if s.asker == nil {
		a, err := s.e.r.kernel.asker()
		if err != nil {
			return err
		}
		s.asker = a
	}
	return s.put(s.asker, s.e.r.take)
}

func (s *sweeper) close() {
	if s.asker == nil {
		return
	}
	if err := s.asker.close(); err != nil && !errors.Is(err, context.Canceled) {
		s.e.r.log.Warn("close the socket for questions", slog.Any("err", err))
	}
	s.asker = nil
}
