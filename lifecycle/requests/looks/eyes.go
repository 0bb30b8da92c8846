package looks

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

const (
	// lookEvery is the time between two looks of a wait.
	lookEvery = 22 * time.Millisecond
	// learnEvery is the same while nothing is waited for, and idleEvery where nobody is
	// connected then; 1/learnShare of a CPU is what these looks may take.
	learnEvery = 50 * time.Millisecond
	learnShare = 100
	idleEvery  = 250 * time.Millisecond
)

// Eyes look at the sockets of a network namespace, in one goroutine, for as many waits
// as there are. All methods but Run are safe for concurrent use.
type Eyes struct {
	looker Looker
	// learns says to look while nothing is waited for, too.
	learns bool

	mu   sync.Mutex
	last Sight
	// parts says what the looks of a wait may take: 1/parts of a CPU.
	parts int
	// changed is closed and replaced with each look.
	changed chan struct{}
	// attend is called with each look of a wait. A look that somebody needs at once
	// has to begin after wanted.
	attend map[*func(Sight)]struct{}
	wanted time.Time
	wake   chan struct{}
}

// NewEyes returns eyes that look by a looker, which is theirs from then on. learns says
// to look while nothing is waited for, too.
func NewEyes(l Looker, learns bool) *Eyes {
	return &Eyes{looker: l, learns: learns, parts: share, changed: make(chan struct{}), attend: make(map[*func(Sight)]struct{}), wake: make(chan struct{}, 1)}
}

// Run takes looks until ctx ends. They cost no more than their share of the time.
func (e *Eyes) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-e.wake:
		}
		next, ok := e.next()
		switch {
		case !ok:
			timer.Stop() // until somebody wakes it
			continue
		case time.Now().Before(next):
			timer.Reset(time.Until(next))
			continue
		}
		s := e.looker.look(ctx, e.waited())
		if ctx.Err() != nil {
			return
		}
		e.took(s)
		timer.Reset(0)
	}
}

// next is when to look again; ok is false where nobody needs a look.
func (e *Eyes) next() (at time.Time, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.wanted.After(e.last.At):
		return e.looker.Affordable(), true
	case len(e.attend) > 0:
		return e.looker.Next(lookEvery, e.parts), true
	case !e.learns:
		return at, false
	case len(e.last.Counted) == 0:
		return e.looker.Next(idleEvery, learnShare), true
	}
	return e.looker.Next(learnEvery, learnShare), true
}

// waited says that there is a wait.
func (e *Eyes) waited() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.attend) > 0
}

// took passes a look on.
func (e *Eyes) took(s Sight) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = s
	close(e.changed)
	e.changed = make(chan struct{})
	for f := range e.attend {
		(*f)(s)
	}
}

// Begin makes the eyes look as often as a wait needs it, and calls f with each look,
// in their order, until end is called. f must not block.
func (e *Eyes) Begin(f func(Sight)) (end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.attend[&f] = struct{}{}
	e.rouse()
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.attend, &f)
	}
}

// Spend is the part of a CPU that the looks of a wait may take from now on, beside those
// that somebody asks for: never more than 1/20.
func (e *Eyes) Spend(part float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.parts
	e.parts = share
	if part > 0 {
		e.parts = int(min(max(share, 1/part), fewest))
	}
	if e.parts < before {
		e.rouse()
	}
}

// fewest bounds how seldom a wait looks: at a look of a millisecond, each five seconds.
const fewest = 5000

// Fresh is the first look that begins now or later. It blocks for some milliseconds,
// as long as a look takes, or until ctx ends: then the look has failed.
func (e *Eyes) Fresh(ctx context.Context) Sight {
	since := time.Now()
	e.mu.Lock()
	if since.After(e.wanted) {
		e.wanted = since
	}
	e.rouse()
	for {
		s, changed := e.last, e.changed
		e.mu.Unlock()
		if !s.At.Before(since) {
			return s
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Sight{Err: context.Cause(ctx)}
		}
		e.mu.Lock()
	}
}

// Own are the addresses of the namespace, as the last look saw them.
func (e *Eyes) Own() []netip.Addr {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last.Own
}

// rouse makes the eyes think again about when to look.
func (e *Eyes) rouse() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}
