package node

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// holding is what of a pod's sessions holds it, by the policies of its ports, at one
// moment.
type holding struct {
	// sessions hold the pod until they have ended, requests only while a request is in
	// flight on them, left do not: they are the application's to end.
	sessions, requests, left int
	// counts are those of conntrack without what is left to the application. An idle
	// session of requests is open here.
	counts conntrack.Counts
	// strict and wide are the clients of requests by their rule, ignored those of TCP
	// sessions that hold nothing. An idle session of requests may owe an answer that takes
	// long, or be asked for one now: that is the hook's to judge. Its client is in idle,
	// too, and so both listed and ignored: without a socket it does not hold.
	strict, wide, ignored, idle lifecycle.PeerSet
}

// all is how many sessions hold the pod for whatever.
func (h *holding) all() int { return h.sessions + h.requests }

// plainly is what holds a pod whose ports all have one policy that takes no look at
// the single sessions.
func plainly(c conntrack.Counts) holding {
	return holding{sessions: c.Blocking(), counts: c}
}

// holdingOf tells apart what holds a pod. served are its ports; none is every port.
func holdingOf(c conntrack.Counts, all []conntrack.Session, u lifecycle.Untils, served []uint16) holding {
	h := holding{
		counts: c,
		strict: make(lifecycle.PeerSet), wide: make(lifecycle.PeerSet), ignored: make(lifecycle.PeerSet),
		idle: make(lifecycle.PeerSet),
	}
	busy := make(lifecycle.PeerSet)
	h.counts.Open, h.counts.Lost, h.counts.Idle, h.counts.Active = 0, 0, 0, 0
	for i := range all {
		s := &all[i]
		until := untilOf(s, u, served)
		blocks := s.State == conntrack.Open || s.State == conntrack.Lost
		tcp := s.Protocol == conntrack.TCP
		switch {
		case blocks && until == lifecycle.UntilWithdrawn:
			h.left++
		case tcp && until.OfRequests() && holds(s, until):
			h.requests++
		case blocks:
			h.sessions++
		}
		switch {
		case !tcp:
		case until == lifecycle.UntilWithdrawn, s.State == conntrack.Idle && !until.OfRequests():
			h.ignored.Add(s.Client)
		case !blocks && s.State != conntrack.Idle: // a handshake holds as long as it may, and not here
		case until == lifecycle.UntilRequestsStrict:
			h.strict.Add(s.Client)
		case until == lifecycle.UntilRequests:
			h.wide.Add(s.Client)
		}
		switch {
		case holds(s, until) && s.State == conntrack.Idle:
			h.count(s)
			h.idle.Add(s.Client)
		case holds(s, until):
			h.count(s)
			busy.Add(s.Client)
		case s.State == conntrack.Idle:
			h.counts.Idle++
		}
	}
	for peer := range busy {
		delete(h.idle, peer)
	}
	// One client's end can have a session on each of several ports. A socket shows no
	// more than that end where a proxy takes what is meant for another port.
	for peer := range h.strict {
		delete(h.wide, peer)
	}
	h.ignore(nil)
	return h
}

// holds says whether a session holds its pod until it has ended, or while a request is in
// flight on it. Silence is no end of a request.
func holds(s *conntrack.Session, until lifecycle.Until) bool {
	switch s.State {
	case conntrack.Open, conntrack.Lost:
		return until != lifecycle.UntilWithdrawn
	case conntrack.Idle:
		return s.Protocol == conntrack.TCP && until.OfRequests()
	default:
		return false
	}
}

// count takes in a session that holds.
func (h *holding) count(s *conntrack.Session) {
	if s.State == conntrack.Lost {
		h.counts.Lost++
	} else {
		h.counts.Open++
	}
	if s.Quiet < conntrack.ActiveFor {
		h.counts.Active++
	}
}

// ignore adds clients whose connections hold nothing, unless they have others that do.
func (h *holding) ignore(others []netip.AddrPort) {
	for _, peer := range others {
		h.ignored.Add(peer)
	}
	for _, holds := range []lifecycle.PeerSet{h.strict, h.wide} {
		for peer := range holds {
			delete(h.ignored, peer)
		}
	}
	maps.Copy(h.ignored, h.idle)
}

// untilOf is what a session holds its pod for. Where it cannot be told which of the
// served ports it is for, it holds for the most that any of them does.
func untilOf(s *conntrack.Session, u lifecycle.Untils, served []uint16) lifecycle.Until {
	serves := func(port uint16) bool { return len(served) == 0 || slices.Contains(served, port) }
	switch {
	case len(u.Ports) == 0:
		return u.Rest
	case s.Destination.Addr() == s.Server.Addr() && serves(s.Destination.Port()):
		return u.Of(s.Destination.Port()) // a proxy in the pod may have taken it
	case serves(s.Server.Port()):
		return u.Of(s.Server.Port())
	}
	most := lifecycle.UntilWithdrawn
	for _, rank := range []lifecycle.Until{lifecycle.UntilRequests, lifecycle.UntilRequestsStrict, lifecycle.UntilSessions} {
		if u.Any(func(of lifecycle.Until) bool { return of == rank }) {
			most = rank
		}
	}
	return most
}

// inEffect are the policies that can be had: without anybody who can tell requests, a
// pod is held for its sessions.
func inEffect(u lifecycle.Untils, judged bool) lifecycle.Untils {
	if judged || !u.Any(lifecycle.Until.OfRequests) {
		return u
	}
	plain := func(of lifecycle.Until) lifecycle.Until {
		if of.OfRequests() {
			return lifecycle.UntilSessions
		}
		return of
	}
	effect := lifecycle.Untils{Rest: plain(u.Rest), Ports: make(map[uint16]lifecycle.Until, len(u.Ports))}
	for port, of := range u.Ports {
		effect.Ports[port] = plain(of)
	}
	return effect
}

// Telling sessions apart costs some microseconds each, and those who hear the kernel's
// events wait meanwhile. It is done again after holdFactor times what it took.
const holdFactor = 20

// apart is what was last told apart, and for what. It is used by one goroutine.
type apart struct {
	holding
	// wanted are the policies that it was told apart for, untils those in effect.
	wanted, untils lifecycle.Untils

	at   time.Time
	took time.Duration
	// due is when it has to be done again, zero if it need not be.
	due time.Time
	// unjudged is why requests cannot be told; empty where they can, or nothing was said.
	unjudged string
}

// hold finds out what holds the pod. What was found a moment ago will do unless it has
// to be of now.
func (v *vigil) hold(c conntrack.Counts, now time.Time, anew bool) {
	judged, why := v.judged(now)
	u, spoken := visible(inEffect(v.settingsNow().Until, judged), v.told())
	a := &v.apart
	a.due = time.Time{}
	switch {
	case v.watch == nil, u.Only(lifecycle.UntilSessions), u.Only(lifecycle.UntilWithdrawn):
		*a = apart{holding: plainly(c), unjudged: why}
	case !anew && u.Equal(a.wanted) && now.Sub(a.at) < holdFactor*a.took && c.Blocking()+c.Idle > 0:
		a.due = a.at.Add(holdFactor * a.took)
		return
	default:
		began := time.Now()
		all := v.watch.Sessions()
		h := holdingOf(c, all, u, v.target.Ports)
		if why == "" {
			why = whySpoken(all, u, v.target.Ports, spoken)
		}
		if h.requests > 0 {
			h.ignore(v.watch.Others())
		}
		effect := u
		if h.named() > lifecycle.MaxQuietPeers {
			why, effect = whyTooMany, inEffect(u, false)
			h = holdingOf(c, all, effect, v.target.Ports)
		}
		*a = apart{holding: h, wanted: u, untils: effect, at: now, took: time.Since(began), unjudged: why}
	}
	v.sight.holdsBy(a.untils, v.target.Ports)
}

// left are the sessions that hold the pod.
func (v *vigil) left() []conntrack.Session {
	return holders(v.watch.Sessions(), v.apart.untils, v.target.Ports)
}

// holders leaves what a release waits for.
func holders(all []conntrack.Session, u lifecycle.Untils, served []uint16) []conntrack.Session {
	var left []conntrack.Session
	for _, s := range all {
		if holds(&s, untilOf(&s, u, served)) {
			left = append(left, s)
		}
	}
	return left
}

// named is how many clients a hook would have to be told of.
func (h *holding) named() int { return len(h.strict) + len(h.wide) + len(h.ignored) }
