package requests

import "time"

// enough is how often something has to be seen to be relied on.
const enough = 3

// placesForOne is how many places where answers ended make it need one more.
const placesForOne = 16

// maxPairs bounds what is remembered of one port.
const maxPairs = 4096

// watched are how far apart looks are at the most that are of a kind: those of a hook,
// those of a sidecar that learns, and those of a busy machine. A pause that is shorter
// than looks are apart is not seen.
var watched = [...]time.Duration{30 * time.Millisecond, 60 * time.Millisecond, closely}

// pair is what a connection has gained from one complete answer to a moment at
// which it rested: bytes in and bytes out, and by how many requests, where it was not
// seen to rest after each. Half of a second answer can be as long as another one is.
type pair struct {
	received, written uint64
	requests          int
}

// turn is a pair and in how many segments the request came.
type turn struct {
	pair
	segments uint32
}

// seen is what came after connections rested with one pair.
type seen struct {
	// prefix counts those on which the server went on: the answer was not complete.
	prefix int
	// complete counts those that a request ended, certain the ones of them where it is
	// certain that nothing else came before that request, and strict the ones of these
	// where the beginning is certain, too.
	complete, certain, strict int
}

// port is what was learned of one served port, and under which rule.
type port struct {
	rule  Rule
	pairs map[pair]*seen
	// ends counts the pairs that a request ended once at least.
	ends int
	// turns counts those of which all is certain. Only the wide rule keeps what follows:
	// likely counts those of which it may not be certain where they began, requests are
	// the sizes of what came in before some rest.
	turns, likely map[turn]int
	requests      map[uint64]struct{}
	// paused is set for good once an answer went on after a rest, unpaused counts the
	// turns since the last time, by how closely they were watched, and certain those turns
	// of which it is certain that the answer did not go on before the next request.
	paused bool
	// interim is set for good once something was sent that is less than an answer.
	interim  bool
	unpaused [len(watched)]int
	certain  int
	// refuted is set for good once a server went on where answers had ended before.
	refuted bool
	// full is how many new pairs are turned away before it is tried again to forget some.
	full int
}

func newPort(rule Rule) *port {
	return &port{
		rule: rule, pairs: make(map[pair]*seen), turns: make(map[turn]int), likely: make(map[turn]int),
		requests: make(map[uint64]struct{}),
	}
}

// wentOn notes that the server went on after a rest: surely within an answer, or
// perhaps before the first one.
func (p *port) wentOn(at pair, based, surely bool) {
	if surely {
		p.paused, p.unpaused = true, [len(watched)]int{}
	}
	if s := p.of(at); based && s != nil {
		p.refuted = p.refuted || s.certain >= enough && s.prefix == 0
		s.prefix++
	}
}

// ended notes that a request ended a rest, whatever came before it. apart is how far the
// looks were apart at the most that would have seen the answer pause.
func (p *port) ended(t turn, from basis, apart time.Duration) {
	for i, limit := range watched {
		if apart <= limit {
			p.unpaused[i]++
		}
	}
	if s := p.of(t.pair); from.based && s != nil {
		s.complete++
		if s.complete == 1 {
			p.ends++
		}
	}
}

// pausesLess says that answers were seen not to pause for so long.
func (p *port) pausesLess(still time.Duration) bool {
	for i, limit := range watched {
		if p.unpaused[i] >= unpausedTurns && (i == 0 || still >= limit) {
			return true
		}
	}
	return false
}

// surely notes of a rest that ended that nothing came before the request.
func (p *port) surely(t turn, from basis) {
	p.certain++
	s := p.of(t.pair)
	if !from.based || s == nil {
		return
	}
	s.certain++
	if p.rule == Wide {
		note(p.likely, t)
	}
	if from.sure {
		p.strictly(t)
	}
}

// strictly notes of such a rest that it is certain as well where the turn began.
func (p *port) strictly(t turn) {
	if s := p.of(t.pair); s != nil {
		s.strict++
		note(p.turns, t)
	}
}

// pausesAt says that an answer went on from there.
func (p *port) pausesAt(at pair) bool {
	s := p.pairs[at]
	return s != nil && s.prefix > 0
}

func note(turns map[turn]int, t turn) {
	if _, known := turns[t]; known || len(turns) < maxPairs {
		turns[t]++
	}
}

// isPart says that so many bytes have never been a request of their own.
func (p *port) isPart(received uint64) bool {
	_, known := p.requests[received]
	return !known && received > 0 && len(p.requests) < maxPairs
}

// needs is how often an answer has to have ended at a place. Where answers end at very
// many places, one that is the same can be so by chance. Where they only pause is no
// matter: a download to a slow reader does at hundreds.
func (p *port) needs() int { return max(enough, p.ends/placesForOne) }

// of returns what is known of a pair, or nil where there is no place for it: it is
// then never relied on.
func (p *port) of(at pair) *seen {
	if p.rule == Wide && len(p.requests) < maxPairs {
		p.requests[at.received] = struct{}{}
	}
	s := p.pairs[at]
	if s != nil {
		return s
	}
	if len(p.pairs) >= maxPairs {
		if p.full > 0 {
			p.full--
			return nil
		}
		p.forget()
	}
	if len(p.pairs) >= maxPairs {
		return nil
	}
	s = new(seen)
	p.pairs[at] = s
	return s
}

// forget drops pairs that were seen complete once, which teach nothing. Where those are
// too few, it drops the pairs that one answer went on from, and none ended at, too: each
// pause of a long stream is one.
func (p *port) forget() {
	for at, s := range p.pairs {
		if s.prefix == 0 && s.complete <= 1 {
			delete(p.pairs, at)
			p.ends -= s.complete
		}
	}
	if maxPairs-len(p.pairs) < maxPairs/16 {
		for at, s := range p.pairs {
			if s.prefix == 1 && s.complete == 0 {
				delete(p.pairs, at)
			}
		}
	}
	if maxPairs-len(p.pairs) < maxPairs/16 {
		p.full = maxPairs // it would cost as much again to free so few
	}
}
