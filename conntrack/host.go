package conntrack

import (
	"net/netip"
	"slices"
	"time"
)

// interest is which flows of a host matter to anybody.
type interest struct {
	protocols []Protocol
	// ports are the named served ports: a flow that has one of them as its source
	// on the host is a session that a flush turned round.
	ports []uint16
	// outbound flows matter too.
	outbound bool
}

// widen takes in another target and says whether that asks for flows that did
// not matter before.
func (in *interest) widen(t Target) bool {
	wider := false
	for _, p := range t.Protocols {
		if !slices.Contains(in.protocols, p) {
			in.protocols, wider = append(in.protocols, p), true
		}
	}
	for _, p := range t.Ports {
		if !slices.Contains(in.ports, p) {
			in.ports, wider = append(in.ports, p), true
		}
	}
	if t.Direction.outbound() && !in.outbound {
		in.outbound, wider = true, true
	}
	return wider
}

// original says that entries with the host as their original source matter
// beyond the sessions that are known already.
func (in *interest) original() bool { return in.outbound || len(in.ports) > 0 }

// host is one address and the sessions that are kept for it. It is not safe for
// concurrent use; the Reader's mutex guards it.
type host struct {
	addr     netip.Addr
	interest interest
	flows    map[flowKey]*flow
	sessions map[pairKey]*kept
	watches  []*Watch
	// joined is when events for the host began to arrive, synced whether a whole
	// snapshot that began later is in step with them.
	joined time.Time
	synced bool
	// walked is when the latest whole snapshot began, ended when a session was
	// last seen to end: without events only a later walk can tell of new ones.
	walked, ended time.Time
	// lost asks for a walk of the entries that have the host as their source,
	// verify for a look at some of its flows.
	lost, verify bool
	// deaf is set while new flows may have come without an event since the latest
	// walk, because the kernel was told to emit none.
	deaf bool
	// limits are the settings of the kernel that judge the host's flows.
	limits limits
}

func newHost(addr netip.Addr, l limits) *host {
	return &host{
		addr: addr, limits: l, deaf: l.events == 0,
		flows: make(map[flowKey]*flow), sessions: make(map[pairKey]*kept),
	}
}

// wish is what the host needs of the next snapshot.
func (h *host) wish() wish {
	return wish{addr: h.addr, original: h.interest.original() || h.lost}
}

// notify tells the watches that something may have changed.
func (h *host) notify() {
	for _, w := range h.watches {
		w.notify()
	}
}

// wants says whether the entry matters to the host.
func (h *host) wants(e *entry) bool {
	key, outbound, ok := pairOf(e, h.addr)
	if !ok || !slices.Contains(h.interest.protocols, e.proto) {
		return false
	}
	if !outbound || h.interest.outbound {
		return true
	}
	k := h.sessions[key]
	return k != nil && k.inbound || slices.Contains(h.interest.ports, key.local.Port())
}

// observe takes in what the kernel said of one flow between asked and answered.
// young says that this was the announcement of a new flow. It returns true if
// something changed.
func (h *host) observe(e *entry, young bool, asked, answered time.Time) bool {
	if !h.wants(e) {
		return false
	}
	f := h.flows[e.key()]
	if f != nil && asked.Before(f.learned) {
		// A walk takes its time: this may be older than what is known by now.
		f.verify, h.verify = true, true
		return false
	}
	if f != nil && f.id == e.id && f.reply == e.reply {
		f.verify, f.young = false, f.young || young
		changed := f.update(e, h.limits, asked, answered)
		h.settle(f, answered)
		return changed
	}
	next := newFlow(e, h.limits, asked, answered)
	next.young = young
	if f != nil && f.continuedBy(e) {
		h.replace(f, next)
	} else {
		if f != nil {
			h.drop(f) // another flow in the place of the one we knew
		}
		if next.ended() && !next.mayRevive() {
			return true // over before it was known, and it will not come back
		}
		h.keep(next, answered)
	}
	h.settle(next, answered)
	return true
}

// keep adds a flow to its session.
func (h *host) keep(f *flow, now time.Time) {
	key, outbound, _ := pairOf(&f.entry, h.addr)
	k := h.sessions[key]
	if k == nil {
		k = &kept{pairKey: key, firstSeen: now, young: f.young}
		h.sessions[key] = k
	}
	k.inbound = k.inbound || !outbound
	k.flows = append(k.flows, f)
	h.flows[f.key()] = f
}

// replace puts the entry that a connection goes on in where the vanished one was.
func (h *host) replace(f, next *flow) {
	if k := h.sessionOf(f); k != nil {
		k.flows[slices.Index(k.flows, f)] = next
	}
	h.flows[next.key()] = next
}

// drop forgets a flow, and its session with the last of them.
func (h *host) drop(f *flow) {
	delete(h.flows, f.key())
	k := h.sessionOf(f)
	if k == nil {
		return
	}
	k.flows = slices.DeleteFunc(k.flows, func(other *flow) bool { return other == f })
	if len(k.flows) == 0 {
		delete(h.sessions, k.pairKey)
	}
}

func (h *host) sessionOf(f *flow) *kept {
	key, _, _ := pairOf(&f.entry, h.addr)
	return h.sessions[key]
}

// server says whether the host's end of the session is the server, for a target
// that names these ports.
func (k *kept) server(ports []uint16) bool {
	return k.inbound || slices.Contains(ports, k.local.Port())
}

// settle draws the consequences of what a flow has become: a session that opens
// is announced to the watches, and what is over and will not come back is
// forgotten.
func (h *host) settle(f *flow, now time.Time) {
	k := h.sessionOf(f)
	if k == nil {
		return
	}
	r, server := rules{limits: h.limits}, k.server(h.interest.ports)
	switch state, _ := k.judge(now, r, server); state {
	case Open, Idle:
		if !k.opened && !f.verify {
			k.opened = true
			for _, w := range h.watches {
				w.opened(k, f.young, now)
			}
		}
	case Over, 0:
		if k.opened {
			k.opened, h.ended = false, now
		}
		for _, f := range slices.Clone(k.flows) {
			// A handshake that nobody answers is forgotten too, or a flood of them
			// would fill the memory: should it go on after all, an event tells.
			unanswered := f.young && f.judge(now, r, k.reversed(f, server)) == 0
			if !f.gone.IsZero() || f.ended() && !f.mayRevive() || unanswered {
				h.drop(f)
			}
		}
	default:
	}
}

// vanished takes note that the kernel has no entry for a flow any more.
func (h *host) vanished(f *flow, now time.Time) {
	f.vanish(now)
	f.verify = false
	h.settle(f, now)
	if h.flows[f.key()] == f && f.proto == TCP {
		h.lost = true
	}
}

// event takes in one message of the event groups. It returns true if something
// changed.
func (h *host) event(kind eventKind, e *entry, now time.Time) bool {
	f := h.flows[e.key()]
	switch {
	case kind == eventNew:
		return h.observe(e, true, now, now)
	case f != nil && (f.id != e.id || kind == eventUpdate && (f.ended() || f.verify)):
		// Events are queued: this one may be older than what the kernel has told
		// since, or newer. The kernel knows, and is asked.
		f.verify, h.verify = true, true
		return true
	case kind == eventUpdate && f != nil:
		return h.observe(e, f.young, now, now)
	case kind == eventUpdate:
		return h.unknown(e, now)
	case f != nil: // eventDestroy
		if e.hasState {
			f.state, f.hasState, f.flags = e.state, true, mergeFlags(f.flags, e.flags)
			f.noteEnd(now)
		}
		h.vanished(f, now)
		return true
	case e.proto == TCP && e.hasState && !h.synced:
		// It ended before the first snapshot could show it. If that was no orderly
		// end, its connection may live on.
		if changed := h.observe(e, false, now, now); !changed {
			return false
		}
		if f := h.flows[e.key()]; f != nil {
			h.vanished(f, now)
		}
		return true
	}
	return false
}

// unknown takes in the change of a flow that is not known. Without its state
// nothing can be said of it, and the snapshot has it or will have it. Once there
// was one, the news may be older than the flow's end, which the kernel has told
// already: the flow counts at once, but is announced only when it is confirmed.
func (h *host) unknown(e *entry, now time.Time) bool {
	if !e.hasState || !h.wants(e) {
		return false
	}
	f := newFlow(e, h.limits, now, now)
	if f.ended() && !f.mayRevive() {
		return false
	}
	f.verify = h.synced
	h.verify = h.verify || f.verify
	h.keep(f, now)
	h.settle(f, now)
	return true
}

// mergeFlags keeps what was known where a message tells the state only.
func mergeFlags(known, told [2]uint8) [2]uint8 {
	if told == [2]uint8{} {
		return known
	}
	return told
}
