package conntrack

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Watch follows the live sessions of one target. It is safe for concurrent use.
// Close ends it; a Watch that is not closed keeps its Reader's goroutines and
// sockets.
type Watch struct {
	reader  *Reader
	target  Target
	hosts   []*host
	changes chan struct{}
	// once is set for a single look, untracked where nothing but sockets tells.
	once, untracked bool

	// All below is guarded by the reader's mutex.
	closed bool
	// baseline is when the first snapshot was in step: later sessions are new.
	baseline time.Time
	peak     int
	created  int
	lastNew  time.Time
	report   report
	// restUntil is when the next change may be announced, later the timer that
	// will.
	restUntil time.Time
	later     *time.Timer
}

// Changes returns a channel that receives when something that Counts and
// Sessions tell may have changed. Several changes are one receive. It is never
// closed.
func (w *Watch) Changes() <-chan struct{} { return w.changes }

// notify announces a change, now or when the reader can be asked again. The
// reader's mutex is held.
func (w *Watch) notify() {
	pause := time.Until(w.restUntil)
	switch {
	case pause <= 0:
		wake(w.changes)
	case w.later == nil:
		w.later = time.AfterFunc(pause, func() {
			w.reader.mu.Lock()
			defer w.reader.mu.Unlock()
			w.later = nil
			wake(w.changes)
		})
	}
}

// countFactor is how many times the cost of counting passes before the next
// change is announced: to judge thousands of sessions at each of thousands of
// events would keep the events from being heard.
const countFactor = 10

// Close ends the watch and, with the last one, all that its Reader runs; it
// waits for that. A second call does nothing.
func (w *Watch) Close() error { return w.reader.remove(w) }

// Err returns why the sessions are unknown at the moment, or nil: the kernel
// could not be asked. The Reader goes on trying.
func (w *Watch) Err() error {
	w.reader.mu.Lock()
	defer w.reader.mu.Unlock()
	return cmp.Or(w.reader.fault, w.reader.walkFault)
}

// Counts judges the sessions now, by what is known. It does not block. Before a
// zero is acted on it has to be confirmed: see Confirm.
func (w *Watch) Counts() Counts {
	w.reader.mu.Lock()
	defer w.reader.mu.Unlock()
	return w.countNow()
}

// countNow judges the sessions. The reader's mutex is held.
func (w *Watch) countNow() Counts {
	now := time.Now()
	w.explain()
	c := Counts{Known: !w.unheard()}
	w.each(now, func(k *kept, state State, held, _ bool) {
		if state == Opening && w.probe(k) {
			return // where replies are not tracked, each probe looks like one for seconds
		}
		c.add(k, state, now)
		if held {
			c.Held++
		}
	})
	blind := w.report.countBlind()
	c.Open += blind
	c.Active += blind
	c.Held += blind
	for _, h := range w.hosts {
		if !h.inStep(w.reader.limits, c.Blocking()) {
			c.Known = false
		}
	}
	c.ReportsPending = w.report.pending()
	if w.target.SocketsReported && w.report.at.IsZero() {
		c.Known = false
	}
	if w.report.blindSeen {
		c.Source = FromSockets
		if w.report.truncated {
			c.Known = false // nothing else would tell of the rest
		}
	}
	w.rest(now)
	w.peak = max(w.peak, c.Blocking())
	c.Peak, c.New, c.LastNew = w.peak, w.created, w.lastNew
	return c
}

func (c *Counts) add(k *kept, state State, now time.Time) {
	switch state {
	case Open:
		c.Open++
	case Lost:
		c.Lost++
	case Idle:
		c.Idle++
		return
	case Opening:
		c.Opening++
		return
	default:
		return
	}
	if q := k.quiet(now); q < ActiveFor {
		c.Active++
	}
}

// ActiveFor is how young a session's last packet is where it is called active.
const ActiveFor = 5 * time.Second

// Sessions returns all sessions that are not over, those of unknown age first,
// then by when they were first seen, then by client. It does not block.
func (w *Watch) Sessions() []Session {
	w.reader.mu.Lock()
	defer w.reader.mu.Unlock()
	now := time.Now()
	defer w.rest(now)
	n := len(w.report.blind)
	for _, h := range w.hosts {
		n += len(h.sessions)
	}
	sessions := make([]Session, 0, n)
	w.each(now, func(k *kept, state State, _, server bool) {
		s := k.session(now, state, server)
		s.Probe = w.probe(k)
		sessions = append(sessions, s)
	})
	sessions = append(sessions, w.report.blindSessions()...)
	sortSessions(sessions)
	return sessions
}

func sortSessions(sessions []Session) {
	slices.SortFunc(sessions, func(a, b Session) int {
		if a.KnownAge != b.KnownAge {
			if b.KnownAge {
				return -1
			}
			return 1
		}
		if a.KnownAge {
			if c := a.FirstSeen.Compare(b.FirstSeen); c != 0 {
				return c
			}
		}
		return cmp.Or(a.Client.Compare(b.Client), a.Server.Compare(b.Server),
			cmp.Compare(a.Protocol, b.Protocol))
	})
}

// each calls f for every session of the target that is not over.
func (w *Watch) each(now time.Time, f func(k *kept, state State, held, server bool)) {
	r := rules{
		limits: w.reader.limits, idleAfter: w.target.IdleAfter, lostAfter: w.target.LostAfter,
		once: w.once,
	}
	for _, h := range w.hosts {
		for _, k := range h.sessions {
			server := k.server(w.target.Ports)
			if !w.relevant(k, server) {
				continue
			}
			if state, held := k.judge(now, r, server); state != 0 && state != Over {
				f(k, state, held, server)
			}
		}
	}
}

// relevant says whether the target asks for the session.
func (w *Watch) relevant(k *kept, server bool) bool {
	t := &w.target
	if !slices.Contains(t.Protocols, k.proto) {
		return false
	}
	if server {
		return t.Direction.inbound() && !slices.Contains(w.report.own, k.local.Port()) && (w.serves(k.local.Port()) || w.redirected(k))
	}
	if !t.Direction.outbound() {
		return false
	}
	f := k.flows[0]
	if !w.serves(f.reply.src.Port()) && !w.serves(f.orig.dst.Port()) {
		return false
	}
	// Between two of the target's own addresses it counts once, at its server.
	return !t.Direction.inbound() || !w.has(f.reply.src.Addr())
}

// redirected says whether the session was meant for a served port of the host and
// led to another one of it, as a proxy in the same network namespace has it.
func (w *Watch) redirected(k *kept) bool {
	for _, f := range k.flows {
		if f.orig.dst.Addr() == k.local.Addr() && w.serves(f.orig.dst.Port()) {
			return true
		}
	}
	return false
}

func (w *Watch) serves(port uint16) bool {
	return len(w.target.Ports) == 0 || slices.Contains(w.target.Ports, port)
}

func (w *Watch) has(a netip.Addr) bool { return slices.Contains(w.target.Addresses, a) }

// opened counts a session that has just become open.
func (w *Watch) opened(k *kept, young bool, now time.Time) {
	if (w.baseline.IsZero() && !young) || !w.relevant(k, k.server(w.target.Ports)) || w.probe(k) {
		return
	}
	w.created++
	w.lastNew = now
}

// probe says whether the session is a kubelet's look at the pod: readiness
// probes go on while it terminates, and must not look like traffic.
func (w *Watch) probe(k *kept) bool {
	t := &w.target
	if len(t.ProbedPorts) == 0 || !slices.Contains(t.ProbedPorts, k.local.Port()) {
		return false
	}
	f := k.flows[0]
	return f.orig.dst == k.local && f.reply.dst == f.orig.src && slices.Contains(t.ProbedFrom, f.orig.src.Addr())
}

// inStep says whether a zero of this host can be believed.
func (h *host) inStep(l limits, blocking int) bool {
	if !h.synced {
		return false
	}
	// Without events nothing tells of new sessions but a walk that began after
	// the last known one had ended.
	return l.events != 0 || blocking > 0 || !h.walked.Before(h.ended)
}
