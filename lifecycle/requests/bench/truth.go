//go:build linux

package main

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// span is a request in flight. It surely was from when its client's first write had
// returned to when the server began its last one; and surely was not before begin
// and after end. What is zero has not happened yet.
type span struct{ begin, sent, last, end time.Time }

// truth is what the clients know. It is safe for concurrent use.
type truth struct {
	mu    sync.Mutex
	spans map[netip.AddrPort][]span
}

func newTruth() *truth { return &truth{spans: make(map[netip.AddrPort][]span)} }

func (t *truth) begin(client netip.AddrPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans[client] = append(t.spans[client], span{begin: time.Now()})
}

func (t *truth) sent(client netip.AddrPort) {
	t.note(client, func(s *span) *time.Time { return &s.sent })
}
func (t *truth) last(client netip.AddrPort) {
	t.note(client, func(s *span) *time.Time { return &s.last })
}
func (t *truth) end(client netip.AddrPort) {
	t.note(client, func(s *span) *time.Time { return &s.end })
}

// note sets a moment of the client's current request, once.
func (t *truth) note(client netip.AddrPort, of func(*span) *time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if all := t.spans[client]; len(all) > 0 {
		if moment := of(&all[len(all)-1]); moment.IsZero() {
			*moment = time.Now()
		}
	}
}

// state is what a connection was doing at some moment.
type state uint8

const (
	unclear state = iota // within the margin of a change
	inFlight
	pausing
)

// at says what the client was doing from one moment to another, between which its
// connection was looked at. pause is how long the whole pause was, where it was one.
func (t *truth) at(client netip.AddrPort, from, to time.Time, margin time.Duration) (s state, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.spans[client]
	i, _ := slices.BinarySearchFunc(all, to.Add(margin), func(s span, at time.Time) int { return s.begin.Compare(at) })
	if i == 0 {
		return unclear, 0
	}
	// all[i] began later, all[i-1] before.
	now := all[i-1]
	flying := !now.sent.IsZero() && from.Sub(now.sent) >= margin
	switch {
	case flying && (now.last.IsZero() && now.end.IsZero() || now.last.Sub(to) >= margin):
		return inFlight, 0
	case now.end.IsZero() || from.Sub(now.end) < margin || i == len(all):
		return unclear, 0
	}
	return pausing, all[i].begin.Sub(now.end)
}
