package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// alone is a watch by the sockets of this network namespace, where connection tracking
// may not be read or tells nothing. It is safe for concurrent use.
type alone struct {
	// why there is nothing better.
	why  error
	eyes *looks.Eyes
	// scope says which handshakes count. The eyes know which connections do.
	scope sockdiag.Scope
	end   func()

	mu       sync.Mutex
	changes  chan struct{}
	counts   conntrack.Counts
	sessions []conntrack.Session
	// before are those of the look before, and when each was seen first.
	before map[flowKey]time.Time
	// handshakes are those of the look before, and when each was seen first.
	handshakes map[flowKey]time.Time
	fault      error
}

// newAlone begins to watch a scope by eyes that look at it already.
func newAlone(eyes *looks.Eyes, scope sockdiag.Scope, why error) *alone {
	a := &alone{why: why, eyes: eyes, scope: scope, changes: make(chan struct{}, 1)}
	a.end = eyes.Begin(a.look)
	return a
}

// look takes in a look.
func (a *alone) look(s looks.Sight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = s.Err
	if s.Err != nil {
		a.counts.Known = false
		return
	}
	first := a.before == nil
	now := make(map[flowKey]time.Time, len(s.Counted))
	sessions := make([]conntrack.Session, 0, len(s.Counted))
	c := conntrack.Counts{
		Known: true, Open: len(s.Counted), Opening: a.opening(s),
		Peak: max(a.counts.Peak, len(s.Counted)), New: a.counts.New, LastNew: a.counts.LastNew, Source: conntrack.FromSockets,
	}
	for i := range s.Counted {
		k := &s.Counted[i]
		key := flowKey{conntrack.TCP, k.Peer, k.Local}
		since, known := a.before[key]
		if !known {
			since = s.At
			if !first {
				c.New, c.LastNew = c.New+1, s.At
			}
		}
		now[key] = since
		if k.Silent < activeFor {
			c.Active++
		}
		sessions = append(sessions, conntrack.Session{
			Protocol: conntrack.TCP, Client: k.Peer, Origin: k.Peer, Server: k.Local, Destination: k.Local,
			State: conntrack.Open, Kernel: k.State.String(), Source: conntrack.FromSockets,
			FirstSeen: since, KnownAge: !first, Quiet: k.Silent,
		})
	}
	changed := first || c != a.counts
	a.counts, a.sessions, a.before = c, sessions, now
	if changed {
		select {
		case a.changes <- struct{}{}:
		default:
		}
	}
}

// youngHandshake is how long a handshake counts. One that takes longer is of somebody
// who does not answer: a scanner, or whoever forges addresses.
const youngHandshake = 3 * time.Second

// opening counts the handshakes of the scope that have only just begun.
func (a *alone) opening(s looks.Sight) int {
	now, young := make(map[flowKey]time.Time), 0
	for _, k := range s.Opening() {
		serves := slices.Contains(a.scope.Ports, k.Local.Port()) || len(a.scope.Ports) == 0 // somebody listens there
		here := len(a.scope.Addresses) == 0 || slices.Contains(a.scope.Addresses, k.Local.Addr())
		if !serves || !here || k.Peer.Addr().IsLoopback() || slices.Contains(s.Own, k.Peer.Addr()) {
			continue
		}
		key := flowKey{conntrack.TCP, k.Peer, k.Local}
		since, known := a.handshakes[key]
		if !known {
			since = s.At
		}
		now[key] = since
		if s.At.Sub(since) < youngHandshake {
			young++
		}
	}
	a.handshakes = now
	return young
}

// activeFor is how long ago the last packet of an active session was at the most.
const activeFor = 5 * time.Second

func (a *alone) Changes() <-chan struct{} { return a.changes }

func (a *alone) Counts() conntrack.Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts
}

func (a *alone) Sessions() []conntrack.Session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sessions
}

func (a *alone) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fault
}

// Confirm takes another look: one can miss a socket.
func (a *alone) Confirm(ctx context.Context) (conntrack.Counts, error) {
	if s := a.eyes.Fresh(ctx); s.Err != nil {
		return conntrack.Counts{}, s.Err
	}
	return a.Counts(), nil
}

// Report has nothing to tell: it is this watch that looks.
func (a *alone) Report(conntrack.SocketReport) {}

// Close ends the watch.
func (a *alone) Close() error {
	a.end()
	return nil
}
