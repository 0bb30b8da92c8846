package requests

import (
	"math"
	"time"
)

// Endless is longer than any request.
const Endless = time.Duration(math.MaxInt64)

// pace is how requests follow each other on a connection, whether it ever rests or
// not. It makes no request younger than it is, as long as the client waits for each
// answer before it asks again.
type pace struct {
	// began is when nothing of the current request had come yet; zero where its
	// beginning was not seen.
	began time.Time
	// turns are the requests that were seen to follow an answer.
	turns int
	// asked are the same, without those that came before the answer beside them; perhaps
	// is set while it is not known whether the latest did.
	asked   int
	perhaps bool
}

// take takes in a look at the connection, before that does. What came in after an
// answer is a new request: the client would have waited for more of it otherwise.
func (p *pace) take(c *connection, ch change, rule Rule) {
	if ch.moved() && p.perhaps {
		if !c.settled {
			p.asked++
		}
		p.perhaps = false // it was the one answer's, if it has rested after that
	}
	if !ch.in && !ch.ahead {
		return
	}
	before := c.order == answered && !c.interim(&c.last)
	if before || ch.written >= leastAnswer {
		p.turns++
		p.began = c.seen
		p.perhaps = (c.order == owing || c.interim(&c.last)) && ch.segments == 1 && ch.sent == 1 && c.last.heard()
		if !p.perhaps && (c.last.heard() || ch.segments > 1) {
			p.asked++
		}
	}
	if rule == Strict && ch.out && ch.segments > 1 && ch.sent > 1 {
		p.asked++ // there may have been a whole turn between
	}
	if !c.last.heard() && !c.missing {
		p.began = c.seen // the first one
	}
}

// age is how long the current request has gone on at the most.
func (p *pace) age(at time.Time) time.Duration {
	if p.began.IsZero() {
		return Endless
	}
	return at.Sub(p.began)
}
