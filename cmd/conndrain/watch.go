package main

import (
	"context"
	"time"

	"github.com/conndrain/conndrain/conntrack"
)

// counter says how many sessions there are, again and again. Err is why that is
// unknown at the moment, if it is known why.
type counter interface {
	Changes() <-chan struct{}
	Counts() conntrack.Counts
	Err() error
}

// watch is what this command needs of a *conntrack.Watch.
type watch interface {
	counter
	reporter
	Sessions() []conntrack.Session
	Confirm(context.Context) (conntrack.Counts, error)
	Close() error
}

// watchOpener begins a watch. It may block as long as the kernel does not
// answer.
type watchOpener func(context.Context) (watch, error)

// opened is what became of a watchOpener.
type opened struct {
	watch watch
	err   error
}

// openWatch opens a watch without blocking.
func openWatch(ctx context.Context, open watchOpener) <-chan opened {
	c := make(chan opened, 1)
	go func() {
		w, err := open(ctx)
		c <- opened{w, err}
	}()
	return c
}

// opener opens a watch on the target.
func opener(r *conntrack.Reader, t conntrack.Target) watchOpener {
	return func(ctx context.Context) (watch, error) {
		w, err := r.Watch(ctx, t)
		if err != nil {
			return nil, err // not w, which would make a watch that is not nil
		}
		return w, nil
	}
}

// closeWatch ends a watch, which may be one that is still being opened. It
// blocks until that is done.
func closeWatch(w watch, opening <-chan opened) {
	if opening != nil {
		w = (<-opening).watch
	}
	if w != nil {
		_ = w.Close() // nobody is left to act on it
	}
}

// closeAtMost is how long a process stays after its answer for a kernel that
// hangs.
const closeAtMost = 100 * time.Millisecond

// briefly waits for f, but not for long: a kernel that hangs must not hold the
// process, and what is left of f ends with it.
func briefly(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(closeAtMost):
	}
}
