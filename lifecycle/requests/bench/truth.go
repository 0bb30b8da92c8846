//go:build linux

package main

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// margin is how near to a change a look says nothing about the classifier.
const margin = 20 * time.Millisecond

// request is what is known of one. A moment that is zero has not happened, or
// nobody has told.
type request struct {
	client netip.AddrPort
	// begin, sent, body and end are the client's: before the first write of the
	// request, after it, before the last one, and after the last read of the answer.
	begin, sent, body, end time.Time
	// began, more and last are the server's: it has the request; it writes the second
	// part of the answer, which is in several; it writes the last one.
	began, more, last time.Time
	// failed requests were not answered.
	failed bool
}

// moment names one of a request's.
type moment uint8

const (
	sent moment = iota
	body
	ended
	began
	more
	last
)

// truth is what clients and servers have noted in one trial. It is safe for
// concurrent use.
type truth struct {
	mu       sync.Mutex
	requests map[uint64]*request
	// direct says that what a client has written is at its server at once.
	direct bool
}

func newTruth(direct bool) *truth {
	return &truth{requests: make(map[uint64]*request), direct: direct}
}

// begin notes that a client is about to send a request.
func (t *truth) begin(id uint64, client netip.AddrPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests[id] = &request{client: client, begin: time.Now()}
}

// note notes a moment of a request, the first one of its kind or, of the last
// write, the last.
func (t *truth) note(id uint64, what moment, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.requests[id]
	if r == nil {
		return // of a connection that another trial's client has left behind
	}
	to := map[moment]*time.Time{sent: &r.sent, body: &r.body, ended: &r.end, began: &r.began, more: &r.more, last: &r.last}[what]
	if to.IsZero() || what == last {
		*to = at
	}
}

// now notes a moment that is now.
func (t *truth) now(id uint64, what moment) { t.note(id, what, time.Now()) }

// fail notes that a request will have no answer.
func (t *truth) fail(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.requests[id]; r != nil {
		r.failed = true
	}
}

// interval is a time; no end is the zero one.
type interval struct{ from, to time.Time }

// life is what is known of one connection, in order and without overlap.
type life struct {
	// flying are when a request surely is in flight, open when one may be.
	flying, open []interval
}

// state is what a connection was doing at some moment.
type state uint8

const (
	unclear state = iota // within the margin of a change, or not told
	inFlight
	pausing
)

// lives sorts out all connections, once the trial is over.
func (t *truth) lives() map[netip.AddrPort]*life {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[netip.AddrPort]*life)
	for _, r := range t.requests {
		l := all[r.client]
		if l == nil {
			l = &life{}
			all[r.client] = l
		}
		l.open = append(l.open, interval{r.begin, r.end})
		if surely, ok := r.flying(t.direct); ok {
			l.flying = append(l.flying, surely)
		}
	}
	for _, l := range all {
		l.flying, l.open = merge(l.flying), merge(l.open)
	}
	return all
}

// flying is when a request surely is in flight.
func (r *request) flying(direct bool) (interval, bool) {
	from := r.began
	if direct && !r.sent.IsZero() && (from.IsZero() || r.sent.Before(from)) {
		from = r.sent
	}
	to := r.last
	if to.IsZero() && (r.failed || !r.end.IsZero()) {
		return interval{}, false // its server has not told
	}
	// An answer may come before the request is complete.
	if direct && !to.IsZero() && r.body.After(to) {
		to = r.body
	}
	return interval{from, to}, !from.IsZero() && (to.IsZero() || to.After(from))
}

// firstMore is when an answer of this trial first went on after a pause; zero if
// none has.
func (t *truth) firstMore() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first time.Time
	for _, r := range t.requests {
		if !r.more.IsZero() && (first.IsZero() || r.more.Before(first)) {
			first = r.more
		}
	}
	return first
}

// counts are all requests, those that failed, and those that were answered but of
// which the server has not told.
func (t *truth) counts() (all, failed, untold int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.requests {
		switch {
		case r.failed:
			failed++
		case !r.end.IsZero() && r.last.IsZero():
			untold++
		}
	}
	return len(t.requests), failed, untold
}

// merge sorts intervals and joins those that overlap.
func merge(all []interval) []interval {
	slices.SortFunc(all, func(a, b interval) int { return a.from.Compare(b.from) })
	var merged []interval
	for _, i := range all {
		n := len(merged) - 1
		if n < 0 || !merged[n].to.IsZero() && i.from.After(merged[n].to) {
			merged = append(merged, i)
			continue
		}
		if before := &merged[n]; !before.to.IsZero() && (i.to.IsZero() || i.to.After(before.to)) {
			before.to = i.to
		}
	}
	return merged
}

// at says what a connection was doing from one moment to another, between which
// it was looked at. pause is how long the whole pause was, where it was one.
func (l *life) at(from, to time.Time) (s state, pause time.Duration) {
	from, to = from.Add(-margin), to.Add(margin)
	if i := begunBy(l.flying, from); i >= 0 && (l.flying[i].to.IsZero() || !l.flying[i].to.Before(to)) {
		return inFlight, 0
	}
	i := begunBy(l.open, to)
	switch {
	case i < 0 || i == len(l.open)-1:
		return unclear, 0 // before the first request and after the last one
	case l.open[i].to.IsZero() || l.open[i].to.After(from):
		return unclear, 0
	}
	return pausing, l.open[i+1].from.Sub(l.open[i].to)
}

// begunBy is the place of the last interval that has begun by then, or -1.
func begunBy(all []interval, then time.Time) int {
	i, _ := slices.BinarySearchFunc(all, then, func(i interval, at time.Time) int {
		if i.from.After(at) {
			return 1
		}
		return -1
	})
	return i - 1
}

// monotonic turns what another process has read of CLOCK_MONOTONIC into a moment of
// this one.
func monotonic(nanoseconds int64) (time.Time, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(time.Duration(nanoseconds - now.Nano())), nil
}
