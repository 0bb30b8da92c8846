package requests

import "time"

// basis says how much is known of where a connection's last complete answer ended:
// something, and for sure.
type basis struct{ based, sure bool }

// doubt is a turn that ended in a look that saw one segment sent as well.
type doubt struct {
	open bool
	turn
	basis
	// handshake is set if the turn may have been of one, alone if the request after it was
	// one segment, surely if what was sent is the rest of an answer, should it have come
	// before that request, and early if that rest may come after it.
	handshake, surely, alone, early bool
}

// rested learns from what ended a rest.
func (c *connection) rested(f *Figures, ch change, late bool, p *port) {
	gained, surely := c.gained(), c.wentOn || !c.shakesHands()
	if !ch.in {
		c.goesOn(gained, c.based, surely, p)
		return
	}
	alone := ch.segments == 1
	if alone && ch.sent > 0 && f.SinceReceived < f.SinceSent {
		// The one segment of it came after what was sent.
		c.goesOn(gained, c.based, surely, p)
		c.asksAgain()
		return
	}
	c.wentOn = false
	if ch.ahead && ch.out {
		return // misses has noted what that means
	}
	t := c.turnTo(&c.last, c.asked)
	// Where both moved, the answer can have gone on before the request came. But a
	// request acknowledges all output before it. A guess teaches no order.
	certain := !c.guessed && (!ch.out || !ch.acknowledged || ch.sent == 1 && (f.SinceReceived > f.SinceSent || f.onItsWay()))
	was := basis{c.based, c.sure}
	p.ended(t, was, c.apart)
	handshake := c.mayShakeHands()
	c.plain = c.plain || c.trusted && handshake
	if c.based {
		c.turns++
	}
	c.base, c.baseAsked = c.last, c.asked
	// Where answers go on from here, this may be a request that did not wait for that.
	early := was.based && p.pausesAt(t.pair)
	if certain {
		c.teach(p, t, was, handshake)
	}
	c.doubt = doubt{
		open: !certain && !c.guessed && ch.sent == 1, turn: t, basis: was,
		handshake: handshake, surely: surely, alone: alone, early: early,
	}
	in := ch.out && f.SinceReceived < f.SinceSent // came last, and perhaps alone
	c.sure = !early && (certain || c.trusted && !in && !c.guessed)
	c.based = c.sure || !early && !in && (c.accepted || !p.paused && !late)
}

// goesOn learns from an answer that went on after a rest.
func (c *connection) goesOn(at pair, based, surely bool, p *port) {
	c.paused = c.paused || surely
	p.wentOn(at, based, surely)
	c.wentOn = true
}

// asksAgain takes in a request of which it is not known where the answer before it ended.
func (c *connection) asksAgain() { c.based, c.sure, c.wentOn = false, false, false }

// resolve learns from a turn whose request and answer have come in one look and in
// one tick, as soon as it is known which came first. It takes a look at which nothing
// has moved since.
func (c *connection) resolve(f *Figures, at time.Time, p *port) {
	d := &c.doubt
	switch {
	case !d.open:
	case d.alone && f.Pure > c.last.Pure && f.DataReceived == c.last.DataReceived && !c.longAgo(f, at):
		// The kernel acknowledges a request that is not answered.
		d.open = false
		c.goesOn(d.pair, d.based, d.surely, p)
		c.asksAgain()
		c.order, c.ambiguous, c.sinceIn = owing, false, f.Written
	case c.order == answered && c.noRequest(f, at):
		d.open = false
		c.based, c.sure = !d.early, !d.early
		c.teach(p, d.turn, d.basis, d.handshake)
	}
}

// misses notes whether a part of a request has come before what belongs ahead of it.
// That teaches nothing, unless some of it came in its place and nothing went out: then
// it surely ended the rest, however much of it is still to come.
func (c *connection) misses(f *Figures, ch change, p *port) {
	switch {
	case ch.in:
		c.missing, c.unclear = false, ch.out && (ch.ahead || c.mayBeAskedOn(f, ch, p))
	case ch.ahead:
		c.missing = true
	}
	if ch.ahead && (ch.out || !ch.in) && c.settled {
		c.asksAgain()
	}
	switch {
	case c.seen.IsZero() && f.heard():
		c.brought = f.DataReceived
	case ch.in || ch.ahead:
		c.brought += max(1, ch.segments)
	}
}

// mayBeAskedOn says that what went out is perhaps the answer to one request, owed before or
// come by now, and a "100 Continue" to another one that has only begun. It is not where all
// of it is one turn that the port is known to have, nor where that would not fit. What
// follows something owed the wide rule takes for one answer in two segments.
func (c *connection) mayBeAskedOn(f *Figures, ch change, p *port) bool {
	if ch.sent < 2 || c.order == answered && ch.segments < 2 || p.rule == Wide && c.order != answered || f.fillsSegments(ch) {
		return false
	}
	s := p.pairs[c.turnTo(f, c.baseAsked+1).pair]
	return !c.based || s == nil || s.strict < p.needs()
}

// countFrom notes from where on what is sent counts as sent since the last request.
func (c *connection) countFrom(f *Figures, ch change, p *port) {
	switch {
	case ch.received == 0: // at most a segment that had come before
		if c.ambiguous && ch.written > 0 && ch.written < leastAnswer {
			c.sinceIn = c.last.Written // a request may have come last, which this asks on
		}
	case !ch.out || f.SinceReceived < f.SinceSent: // in came last; the queue would be no proof
		c.sinceIn = f.Written
	case !p.interim || ch.sent == 1 && f.SinceReceived > f.SinceSent || c.resting && ch.segments == 1 && !p.paused:
		c.sinceIn = c.last.Written
	default:
		// The end of one answer and the beginning of the next can have come: the latter
		// can be a "100 Continue".
		c.sinceIn = f.Written
	}
}
