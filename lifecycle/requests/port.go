package requests

import "time"

// enough is how often something has to be seen to be relied on.
const enough = 3

// maxPairs bounds what is remembered of one port.
const maxPairs = 4096

// pair is what a connection has gained from one complete answer to a moment at
// which it rested: bytes in and bytes out.
type pair struct{ received, written uint64 }

// turn is a pair and in how many segments the request came.
type turn struct {
	pair
	segments uint32
}

// seen is what came after connections rested with one pair.
type seen struct {
	// prefix counts those on which the server went on: the answer was not complete.
	prefix int
	// complete counts those that a request ended, and strict the ones of them where
	// it is certain that nothing else came before that request.
	complete, strict int
}

// port is what was learned of one served port.
type port struct {
	pairs map[pair]*seen
	turns map[turn]int
	// paused is set for good once an answer went on after a rest, unpaused counts the
	// turns since the last time, and gap is the longest such rest.
	paused   bool
	unpaused int
	gap      time.Duration
}

func newPort() *port { return &port{pairs: make(map[pair]*seen), turns: make(map[turn]int)} }

// wentOn notes that an answer went on after a rest.
func (p *port) wentOn(at pair, based bool, gap time.Duration) {
	p.paused, p.unpaused = true, 0
	p.gap = max(p.gap, gap)
	if s := p.of(at); based && s != nil {
		s.prefix++
	}
}

// ended notes that a request ended a rest: the answer was complete. strict says that
// nothing but it moved.
func (p *port) ended(t turn, based, strict bool) {
	p.unpaused++
	s := p.of(t.pair)
	if !based || s == nil {
		return
	}
	s.complete++
	if !strict {
		return
	}
	s.strict++
	if _, known := p.turns[t]; known || len(p.turns) < maxPairs {
		p.turns[t]++
	}
}

// of returns what is known of a pair, or nil where there is no place for it: it is
// then never relied on.
func (p *port) of(at pair) *seen {
	s := p.pairs[at]
	if s != nil {
		return s
	}
	if len(p.pairs) >= maxPairs {
		p.forget()
	}
	if len(p.pairs) >= maxPairs {
		return nil
	}
	s = new(seen)
	p.pairs[at] = s
	return s
}

// forget drops pairs that were seen complete once, which teach nothing. A pair that
// an answer went on from is never dropped.
func (p *port) forget() {
	for at, s := range p.pairs {
		if s.prefix == 0 && s.complete <= 1 {
			delete(p.pairs, at)
		}
	}
}
