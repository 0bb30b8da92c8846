package requests

// TLS's handshake can be seen as so many turns: the first hello, a second one where the
// server asks for it, and the client's last word; in so many segments at the most.
const (
	handshakeTurns    = 3
	handshakeSegments = 32
)

// teach has the port learn from a turn of which it is certain that nothing came before
// the next request. Where that turn may have been of a handshake, the strict rule learns
// from it as soon as the next one is the same, since a handshake does not repeat itself.
func (c *connection) teach(p *port, t turn, was basis, handshake bool) {
	same := t.pair == c.before.pair
	c.plain = c.plain || same
	if same && c.held {
		p.strictly(c.before)
	}
	c.before, c.held = t, handshake && !c.plain && was.sure
	p.surely(t, basis{was.based, was.sure && !c.held})
}

// mayShakeHands says that what came and went is perhaps no request and its answer, but
// the end of TLS's handshake, and the beginning of a request with it. The first segment
// of all is none of that.
func (c *connection) mayShakeHands() bool {
	first := c.based && c.base.Received == 0 && c.base.Written == 0 && c.brought == 1
	return !first && !c.plain && c.turns < handshakeTurns && c.brought <= handshakeSegments
}

// shakesHands says that the rest before can be one within TLS's handshake: the
// server's last words in it can come while it works on the first request.
func (c *connection) shakesHands() bool { return c.turns == 0 && c.brought > 1 }
