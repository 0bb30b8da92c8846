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
	// Wide also believes a silence twice as long as any pause within an answer, and
	// ports that have not paused for twenty turns. The first stream that a port ever
	// sends can be taken for a pause.
	Wide
)

const (
	// leastSilence is the shortest silence that says something by itself.
	leastSilence = time.Second
	// unpausedTurns is after how many turns without a pause a port is taken for one
	// that does not pause.
	unpausedTurns = 20
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
	// sinceIn is Written when something last came in.
	sinceIn uint64
	// settled is set while it rests: answered, all acknowledged, two looks the same.
	// accepted is set if that rest was judged Between.
	settled, accepted bool
	// base is where the last complete answer ended; based is false before the first.
	base     Figures
	based    bool
	turns    int
	lookedAt uint64
}

// Verdict is what is said of one connection.
type Verdict struct {
	Class Class
	// Silent is how long nothing has moved, at the least.
	Silent time.Duration
	// Turns are the complete requests seen on this connection.
	Turns int
}

// Classifier keeps the history of the connections of one network namespace. It is
// not safe for concurrent use.
type Classifier struct {
	ports       map[uint16]*port
	connections map[key]*connection
	looks       uint64
}

// New returns a Classifier that knows nothing yet.
func New() *Classifier {
	return &Classifier{ports: make(map[uint16]*port), connections: make(map[key]*connection)}
}

// Look takes in one look at all connections, and returns what they are doing now, by
// the rule, in the look's order. Connections that it does not have are forgotten.
// Looks have to come in the order of their time.
func (c *Classifier) Look(at time.Time, rule Rule, all []Figures) []Verdict {
	c.looks++
	verdicts := make([]Verdict, len(all))
	for i := range all {
		verdicts[i] = c.look(at, rule, &all[i])
	}
	for k, kept := range c.connections {
		if kept.lookedAt != c.looks {
			delete(c.connections, k)
		}
	}
	return verdicts
}

func (c *Classifier) look(at time.Time, rule Rule, f *Figures) Verdict {
	p := c.ports[f.Local.Port()]
	if p == nil {
		p = newPort()
		c.ports[f.Local.Port()] = p
	}
	k := key{f.Local, f.Peer}
	kept := c.connections[k]
	if kept == nil || !f.follows(&kept.last) {
		kept = begin(f, at)
		c.connections[k] = kept
	}
	kept.lookedAt = c.looks
	if !f.Known {
		return Verdict{Class: Unknown}
	}
	kept.take(f, at, p)
	class := kept.class(rule, at, p)
	kept.accepted = kept.settled && (kept.accepted || class == Between)
	return Verdict{Class: class, Silent: at.Sub(kept.moved), Turns: kept.turns}
}

// begin keeps a connection from its first look on. One that has not spoken yet is
// known from its beginning; of another one the first complete turn is the start.
func begin(f *Figures, at time.Time) *connection {
	c := &connection{moved: at}
	if f.Known && f.Received == 0 && f.Written == 0 {
		c.based = true
		c.base = *f
	}
	return c
}

// take learns from a look.
func (c *connection) take(f *Figures, at time.Time, p *port) {
	var ch change
	if first := c.seen.IsZero(); !first {
		ch = f.since(&c.last)
	}
	if ch.moved() && c.settled {
		c.rested(ch, at, p)
	}
	if ch.in {
		c.sinceIn = c.last.Written
	}
	c.order = c.decideOrder(f, ch, at, p)
	if ch.moved() {
		c.moved = at
	}
	if c.order != undecided {
		c.ambiguous = false
	}
	still := !c.seen.IsZero() && !ch.moved() && !ch.acknowledged && !ch.retransmitted
	c.settled = still && c.order == answered && !c.interim(f) && f.rests()
	c.last, c.seen = *f, at
}

// rested learns from what ended a rest.
func (c *connection) rested(ch change, at time.Time, p *port) {
	gained := c.gained()
	if !ch.in {
		p.wentOn(gained, c.based, at.Sub(c.moved))
		return
	}
	p.ended(turn{gained, c.last.DataReceived - c.base.DataReceived}, c.based, !ch.out)
	if c.based {
		c.turns++
	}
	c.base, c.based = c.last, true
}

// gained is what came since the last complete answer.
func (c *connection) gained() pair {
	return pair{c.last.Received - c.base.Received, c.last.Written - c.base.Written}
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
	if s := p.pairs[c.gained()]; c.based && s != nil && s.prefix > 0 {
		return Streaming
	}
	return Unknown
}

// between says whether a connection that rests does so after a complete answer.
func (c *connection) between(rule Rule, at time.Time, p *port) bool {
	if c.turns < enough {
		return false
	}
	s := p.pairs[c.gained()]
	if s != nil && s.prefix == 0 && (s.strict >= enough || !p.paused && s.complete >= enough) {
		return true
	}
	if rule != Wide {
		return false
	}
	paused := s != nil && s.prefix > 0
	return at.Sub(c.moved) >= max(leastSilence, 2*p.gap) || !paused && p.unpaused >= unpausedTurns
}
