package requests

import (
	"net/netip"
	"time"
)

// Rule is how much evidence "between" needs.
type Rule uint8

const (
	// Strict goes by answers of the same size only, which ended three times where
	// these bytes ended. Ports whose answers have ever-new sizes are never between.
	Strict Rule = iota
	// Wide also believes ports that have never paused within an answer: after twenty
	// turns, or after a silence of a second. The first stream that a port ever sends
	// can be taken for a pause.
	Wide
)

const (
	// leastSilence is the shortest silence that says something by itself.
	leastSilence = time.Second
	// unpausedTurns is after how many turns without a pause a port is taken for one
	// that does not pause.
	unpausedTurns = 20
	// closely is the longest time between two looks that see every pause that matters.
	closely = 100 * time.Millisecond
)

// key is one connection.
type key struct{ local, peer netip.AddrPort }

// connection is what is kept of one.
type connection struct {
	last Figures
	// seen is when it was looked at last, moved when it last moved as far as is known.
	seen, moved time.Time
	order       order
	// A turn whose order could not be told: it is told by whether Pure grows.
	ambiguous  bool
	pureBefore uint32
	// missing is set while a part of a request has come, but not what belongs before it,
	// and unclear while that may be so.
	missing, unclear bool
	// brought is how many segments have come that were not only seen before.
	brought uint32
	// sinceIn is Written when something last came in.
	sinceIn uint64
	// resting is set while it rests: something was sent, all is acknowledged, and two
	// looks are the same. settled is set if it rests after an answer or a part of one,
	// accepted if that was judged Between.
	resting, settled, accepted bool
	// unresolved is set while it rests in a turn whose order could not be told, guessed if
	// it rests because that turn is one that the port is known to have.
	unresolved, guessed bool
	// trusted is set if it was Between by answers that surely were complete, at the
	// last look at which it was settled.
	trusted bool
	// base is where the last complete answer ended; based is false before the first, and
	// while that is not known.
	base Figures
	basis
	// asked are the requests up to the last look but for the first of all, baseAsked
	// those up to base.
	asked, baseAsked int
	turns            int
	// before is the last turn that surely ended, held set while the strict rule has not
	// learned from it, and plain once it is certain that this is no handshake any more.
	before      turn
	held, plain bool
	// wentOn is set once the current answer has gone on after a rest, paused once one has
	// on this connection.
	wentOn, paused bool
	// apart is how far two looks since the last request were apart at the most, but for those
	// in a rest.
	apart    time.Duration
	doubt    doubt
	pace     pace
	lookedAt uint64
}

// history is what is kept of the connections of one network namespace under one
// rule. What a rule believes goes into what it learns, so that each has its own.
type history struct {
	rule        Rule
	ports       map[uint16]*port
	connections map[key]*connection
	looks       uint64
	at          time.Time // of the last one
}

func newHistory(rule Rule) history {
	return history{rule: rule, ports: make(map[uint16]*port), connections: make(map[key]*connection)}
}

// look takes in one look at all connections, and tells of each in its order.
func (h *history) look(at time.Time, all []Figures, tell func(i int, c *connection, class Class)) {
	h.looks++
	watched := !h.at.IsZero() && at.Sub(h.at) <= closely
	h.at = at
	for i := range all {
		f := &all[i]
		p := h.ports[f.Local.Port()]
		if p == nil {
			p = newPort(h.rule)
			h.ports[f.Local.Port()] = p
		}
		k := key{f.Local, f.Peer}
		kept := h.connections[k]
		untold := kept != nil && kept.seen.IsZero()
		if kept == nil || f.Known && untold || !f.follows(&kept.last) {
			kept = begin(f, at, watched && !untold)
			h.connections[k] = kept
		}
		kept.lookedAt = h.looks
		if !f.Known {
			tell(i, kept, Unknown)
			continue
		}
		kept.take(f, at, p)
		class := kept.class(h.rule, at, p)
		kept.accepted = kept.settled && (kept.accepted || class == Between)
		tell(i, kept, class)
	}
	for k, kept := range h.connections {
		if h.looks-kept.lookedAt > 1 { // one look alone can miss a socket
			delete(h.connections, k)
		}
	}
	if len(h.ports) > maxPorts {
		h.forgetPorts()
	}
}

// maxPorts is how many ports are remembered on which nobody is connected, as those of
// a server that listens on another one for each transfer.
const maxPorts = 1024

// forgetPorts drops what was learned of ports on which nobody is connected now.
func (h *history) forgetPorts() {
	used := make(map[uint16]bool)
	for k := range h.connections {
		used[k.local.Port()] = true
	}
	for port := range h.ports {
		if !used[port] {
			delete(h.ports, port)
		}
	}
}

// begin keeps a connection from its first look on. One that has not spoken yet, or that
// was not there a moment ago, is known from its beginning; of another one the first
// complete turn is the start.
func begin(f *Figures, at time.Time, fresh bool) *connection {
	c := &connection{moved: at, missing: f.Known && !f.heard() && f.OutOfOrder > 0}
	if f.Known && (fresh && f.OutOfOrder == 0 || f.Received == 0 && f.Written == 0) {
		c.based, c.sure, c.baseAsked = true, true, -1 // at no bytes, before the first request
	}
	return c
}

// take learns from a look.
func (c *connection) take(f *Figures, at time.Time, p *port) {
	var ch change
	first := c.seen.IsZero()
	if !first {
		ch = f.since(&c.last)
	}
	c.pace.take(c, ch, p.rule)
	var since time.Duration // the look before
	if !first {
		since = at.Sub(c.seen)
	}
	late := since > closely
	if !c.settled {
		c.apart = max(c.apart, since)
	}
	c.doubt.open = c.doubt.open && !ch.moved()
	// What a server sends with its FIN, such as TLS's goodbye, ends no pause; nor does a client
	// that gives up an answer end one.
	switch {
	case ch.moved() && c.settled && f.Established:
		c.rested(f, ch, late, p)
	case ch.in && !ch.out && c.unresolved:
		c.based, c.sure = false, false // it may be in the middle of a request
	}
	c.misses(f, ch, p)
	c.order = c.decideOrder(f, ch, at, p)
	c.countFrom(f, ch, p)
	if ch.moved() || ch.ahead {
		c.moved = at
	}
	if c.order != undecided {
		c.ambiguous = false
	}
	if !ch.moved() {
		c.resolve(f, at, p)
	}
	if ch.in {
		c.apart = since
	}
	still := !c.seen.IsZero() && !ch.moved()
	c.resting = still && c.order == answered && f.rests()
	c.settled = c.resting && !c.interim(f) && !c.unclear
	c.unresolved = p.rule == Wide && still && c.ambiguous && f.rests() && !c.interim(f) && !c.unclear
	p.interim = p.interim || c.resting && c.interim(f)
	c.last, c.seen, c.asked = *f, at, c.pace.asked
}

// gained is what came since the last complete answer.
func (c *connection) gained() pair { return c.turnTo(&c.last, c.asked).pair }

// turnTo is what came since the last complete answer up to these figures, at which so
// many requests had begun.
func (c *connection) turnTo(f *Figures, asked int) turn {
	return turn{
		pair{f.Received - c.base.Received, f.Written - c.base.Written, asked - c.baseAsked},
		f.DataReceived - c.base.DataReceived,
	}
}

// interim says that what was sent since the last request is less than an answer.
func (c *connection) interim(f *Figures) bool { return f.Written-c.sinceIn < leastAnswer }

// rests says that nothing is on its way.
func (f *Figures) rests() bool {
	return f.Established && f.ReceiveQueue == 0 && f.SendQueue == 0 && !f.onItsWay()
}

// class says what the connection is doing.
func (c *connection) class(rule Rule, at time.Time, p *port) Class {
	f := &c.last
	switch {
	case c.order == owing:
		return Owes
	case f.onItsWay() || f.SendQueue > 0:
		return Sending
	case !c.settled:
		return Unknown
	case c.between(rule, at, p):
		return Between
	}
	if c.based && p.pausesAt(c.gained()) {
		return Streaming
	}
	return Unknown
}

// between says whether a connection that rests does so after a complete answer.
func (c *connection) between(rule Rule, at time.Time, p *port) bool {
	s := p.pairs[c.gained()]
	known := c.based && s != nil && s.prefix == 0
	c.trusted = known && c.sure && s.strict >= p.needs() && c.gained().requests <= 1 && !c.pace.perhaps
	switch {
	case p.refuted:
		return false
	case c.trusted:
		return true
	case p.paused || c.turns < enough:
		return false
	case known && s.complete >= p.needs() && s.certain > 0 && (rule == Wide || s.certain >= p.needs()):
		return true
	case rule != Wide || p.certain < enough:
		return false
	}
	still := at.Sub(c.moved)
	return still >= leastSilence || p.pausesLess(still)
}
