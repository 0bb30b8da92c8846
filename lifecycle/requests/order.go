package requests

import "time"

// order says which came last on a connection.
type order uint8

const (
	undecided order = iota
	owing           // in
	answered        // out
)

const (
	// leastAnswer is fewer bytes than any final answer has. "100 Continue" and the
	// like have 25 to 47.
	leastAnswer = 60
	// acknowledgedWithin is how long it takes a kernel at most to acknowledge what no
	// answer has acknowledged, and turnsOfRoundTrip what it is for slow networks.
	acknowledgedWithin = 100 * time.Millisecond
	turnsOfRoundTrip   = 2.5
)

// decideOrder takes in the figures of a look, of which ch has changed since the
// look before, and says which came last.
func (c *connection) decideOrder(f *Figures, ch change, at time.Time, p *port) order {
	c.guessed = c.guessed && !ch.moved()
	switch {
	case c.missing:
		return owing // the client has sent all of it
	case f.DataSent == 0 && !f.heard() && f.ReceiveQueue == 0:
		return undecided // it has not spoken yet
	case f.DataSent == 0 || f.ReceiveQueue > 0:
		return owing
	case !f.heard():
		return answered // a server that speaks first
	case f.SinceReceived < f.SinceSent:
		return owing
	case f.SinceReceived > f.SinceSent:
		return answered
	}
	// Both in the same tick.
	switch {
	case ch.in && !ch.out:
		if f.onItsWay() {
			return undecided
		}
		return owing
	case ch.out && !ch.in:
		return answered
	case ch.in && ch.out:
		c.pureBefore = c.last.Pure
		// A request acknowledges all output before it.
		if f.onItsWay() || c.turnIsPlain(ch, p) {
			return answered
		}
		if c.guessed = c.turnIsLikely(f, ch, p); c.guessed {
			return answered
		}
		c.ambiguous = true
		return undecided
	case ch.acknowledged && !c.seen.IsZero():
		return answered
	}
	if c.order != undecided || !c.ambiguous {
		return c.order
	}
	if c.noRequest(f, at) {
		return answered
	}
	return undecided
}

// noRequest says that no request came last in the look that moved: one that is not
// answered is acknowledged by a segment without data.
func (c *connection) noRequest(f *Figures, at time.Time) bool {
	return f.Pure == c.pureBefore && c.longAgo(f, at)
}

// longAgo says that a request that came in the look that moved would have been
// acknowledged by now.
func (c *connection) longAgo(f *Figures, at time.Time) bool {
	limit := max(acknowledgedWithin, time.Duration(turnsOfRoundTrip*float64(f.RoundTrip)))
	return at.Sub(c.moved) >= limit
}

// turnIsPlain says that the change was one request and its answer, and not an
// answer's end and a request.
func (c *connection) turnIsPlain(ch change, p *port) bool {
	if !c.settled || c.mayShakeHands() || ch.retransmitted || p.rule == Strict && !c.accepted {
		return false
	}
	if p.turns[turn{pair{ch.received, ch.written, 1}, ch.segments}] >= p.needs() && (ch.segments == 1 || p.rule == Wide) {
		return true
	}
	return ch.segments == 1 && c.turns > 0 && (c.accepted || !p.paused && p.certain >= enough)
}

// turnIsLikely says that all that has come and gone since the last complete answer is one
// request in several segments and its answer, as the port is known to have them: all but
// the last segment had come before this look. An answer to those and another request would
// look the same, if they add up to the same bytes. So what had come must never have been
// answered by itself; it has to be known where the last answer ended, since the sizes from
// the middle of one request to the middle of the next are the same, too; and the strict
// rule does not go by it, nor does any once an answer has paused.
func (c *connection) turnIsLikely(f *Figures, ch change, p *port) bool {
	return p.rule == Wide && !p.paused && c.based && ch.segments == 1 && !ch.retransmitted &&
		p.isPart(c.gained().received) && p.likely[c.turnTo(f, c.pace.asked)] >= p.needs()
}
