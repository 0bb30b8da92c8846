package conntrack

import (
	"net/netip"
	"slices"
	"time"
)

// pairKey names a session of a host: the host's end and the other one, whoever of
// them is the server, and whichever zones track it.
type pairKey struct {
	proto         Protocol
	local, remote netip.AddrPort
}

// pairOf returns the pair that an entry belongs to for the host with this
// address, and whether the host is its original source. ok is false for the
// flows of others, and for a flow of the host to itself, which is no session.
func pairOf(e *entry, host netip.Addr) (key pairKey, outbound, ok bool) {
	fromHost := e.orig.src.Addr() == host
	toHost := e.reply.src.Addr() == host
	switch {
	case fromHost == toHost:
		return pairKey{}, false, false
	case toHost:
		// The reply's destination is the client as the server sees it.
		return pairKey{e.proto, e.reply.src, e.reply.dst}, false, true
	default:
		// The original destination is what the host itself is connected to.
		return pairKey{e.proto, e.orig.src, e.orig.dst}, true, true
	}
}

// kept is one session that a host keeps, with all entries that track it.
type kept struct {
	pairKey
	flows []*flow
	// inbound is set once an entry was seen that has the host as its server. A
	// later entry with the host as its source is then the same session, turned
	// round by a flush.
	inbound   bool
	firstSeen time.Time
	young     bool
	// opened is set from when the session was first seen open until it was seen to
	// be over.
	opened bool
	// socket is when the latest report began that had a socket of the session,
	// zero when the latest whole report had none.
	socket time.Time
	// hadSocket is set once a report had a socket of the session.
	hadSocket bool
	// without is when the first whole report began that had none, with no packet
	// since; zero while it has one.
	without time.Time
}

// packetSince says whether a packet may have come since then.
func (k *kept) packetSince(t time.Time) bool {
	for _, f := range k.flows {
		if f.gone.IsZero() && f.last.at.After(t) {
			return true
		}
	}
	return false
}

// reversed says whether the flow has the session's server as its source.
func (k *kept) reversed(f *flow, server bool) bool {
	return server && f.orig.src == k.local && k.proto == f.proto && f.reply.src != k.local
}

// judge says what the session is now. server is true where the host's end is the
// server. 0 means that it never was a session. held says that only a socket of the
// session still lives, whatever its entries say.
func (k *kept) judge(now time.Time, r rules, server bool) (state State, held bool) {
	state = k.judgeEntries(now, r, server)
	if state != Open && state != Idle && state != Lost && !k.socket.IsZero() {
		return Open, true
	}
	return state, false
}

// judgeEntries goes by the kernel's entries alone.
func (k *kept) judgeEntries(now time.Time, r rules, server bool) State {
	var found [Over + 1]bool
	var lostSince, overAt time.Time
	for _, f := range k.flows {
		state := f.judge(now, r, k.reversed(f, server))
		found[state] = true
		switch state {
		case Lost:
			if f.firstSeen.After(lostSince) {
				lostSince = f.firstSeen
			}
		case Over:
			at := f.closedAt
			if at.IsZero() {
				at = f.since
			}
			if at.After(overAt) {
				overAt = at
			}
		default:
		}
	}
	switch {
	case found[Open]:
		return Open
	case found[Idle]:
		return Idle
	case found[Lost] && (!found[Over] || !overAt.After(lostSince)):
		return Lost
	case found[Over]:
		return Over
	case found[Opening]:
		return Opening
	}
	return 0
}

// quiet is how long the session has had no packet, at the least, or -1 where
// nothing is known of it.
func (k *kept) quiet(now time.Time) time.Duration {
	quiet := time.Duration(-1)
	for _, f := range k.flows {
		if !f.hasTimeout || !f.last.estimated {
			continue
		}
		if q := f.quiet(now, true); quiet < 0 || q < quiet {
			quiet = q
		}
	}
	return quiet
}

// leading returns the entry that shows the session best: the first one that the
// kernel still has.
func (k *kept) leading() *flow {
	for _, f := range k.flows {
		if f.gone.IsZero() && !f.ended() {
			return f
		}
	}
	return k.flows[0]
}

// session describes the session for a reader outside. state is its judgement.
func (k *kept) session(now time.Time, state State, server bool) Session {
	f := k.leading()
	s := Session{
		Protocol: k.proto, State: state,
		Kernel:      stateName(k.proto, f.state, f.hasState),
		ClosedFirst: f.closedFirst(k.reversed(f, server)),
		Offloaded:   f.offloaded(),
		FirstSeen:   k.firstSeen, KnownAge: k.young,
		Quiet: k.quiet(now),
	}
	switch {
	case !server:
		s.Outbound = true
		s.Client, s.Origin = f.reply.dst, f.orig.src
		s.Server, s.Destination = f.reply.src, f.orig.dst
	case k.reversed(f, server):
		s.Client, s.Origin = k.remote, f.reply.src
		s.Server, s.Destination = k.local, k.local
	default:
		s.Client, s.Origin = k.remote, f.orig.src
		s.Server, s.Destination = k.local, f.orig.dst
	}
	for _, f := range k.flows {
		if f.zone != 0 && !slices.Contains(s.Zones, f.zone) {
			s.Zones = append(s.Zones, f.zone)
		}
	}
	slices.Sort(s.Zones)
	return s
}
