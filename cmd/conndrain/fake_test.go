package main

import (
	"context"
	"sync"
	"time"

	"github.com/conndrain/conndrain/conntrack"
)

// fakeWatch is a watch whose counts a test sets.
type fakeWatch struct {
	changes chan struct{}
	// onReport is called with the counts for each report.
	onReport func(*conntrack.Counts, conntrack.SocketReport)

	mu       sync.Mutex
	counts   conntrack.Counts
	sessions []conntrack.Session
	fault    error
	reports  []conntrack.SocketReport
	closed   bool
}

func newFakeWatch() *fakeWatch { return &fakeWatch{changes: make(chan struct{}, 1)} }

// set changes the watch and announces it.
func (w *fakeWatch) set(change func(*fakeWatch)) {
	w.change(change)
	select {
	case w.changes <- struct{}{}:
	default:
	}
}

// change changes the watch.
func (w *fakeWatch) change(change func(*fakeWatch)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// later changes the watch after some time.
func (w *fakeWatch) later(d time.Duration, change func(*fakeWatch)) {
	time.AfterFunc(d, func() { w.set(change) })
}

// open opens the watch at once.
func (w *fakeWatch) open(context.Context) (watch, error) { return w, nil }

func (w *fakeWatch) Changes() <-chan struct{} { return w.changes }

func (w *fakeWatch) Counts() conntrack.Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Peak = max(w.counts.Peak, w.counts.Blocking())
	return w.counts
}

func (w *fakeWatch) Confirm(context.Context) (conntrack.Counts, error) { return w.Counts(), nil }

func (w *fakeWatch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault
}

func (w *fakeWatch) Sessions() []conntrack.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions
}

func (w *fakeWatch) Report(r conntrack.SocketReport) {
	w.set(func(w *fakeWatch) {
		w.reports = append(w.reports, r)
		if w.onReport != nil {
			w.onReport(&w.counts, r)
		}
	})
}

func (w *fakeWatch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	return nil
}

// known sets the counts to these, known.
func known(c conntrack.Counts) func(*fakeWatch) {
	c.Known = true
	return func(w *fakeWatch) { w.counts = c }
}

// unknown makes the counts unknown; they stay what they were.
func unknown(w *fakeWatch) { w.counts.Known = false }
