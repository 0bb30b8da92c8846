package requests

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The strict rule goes by what is certain, and by one request at a time.
func TestHowMuchIsCertain(t *testing.T) {
	t.Parallel()
	place := pair{100, 300, 1}
	for _, tc := range []struct {
		name         string
		seen         seen
		change       func(*connection)
		strict, wide bool
	}{
		{"all of it", seen{complete: 3, certain: 3, strict: 3}, nil, true, true},
		{"where it ended", seen{complete: 3, certain: 3}, nil, true, true},
		{"where it ended, too seldom", seen{complete: 9, certain: 2}, nil, false, true},
		{"nothing", seen{complete: 9}, nil, false, false},
		{"of a connection with few turns", seen{complete: 3, certain: 3, strict: 3}, func(c *connection) { c.turns = 2 }, true, true},
		{"where it ended, of a connection with few turns", seen{complete: 3, certain: 3}, func(c *connection) { c.turns = 2 }, false, false},
		{"whether it was one request", seen{complete: 3, certain: 3, strict: 3}, func(c *connection) { c.turns, c.pace.perhaps = 2, true }, false, false},
		{"that it were two requests", seen{complete: 3, certain: 3, strict: 3}, func(c *connection) { c.turns, c.baseAsked = 2, -1 }, false, false},
	} {
		for rule, want := range map[Rule]bool{Strict: tc.strict, Wide: tc.wide} {
			c := &connection{basis: basis{true, true}, turns: 3, asked: 1, last: Figures{Received: 100, Written: 300}}
			if tc.change != nil {
				tc.change(c)
			}
			p := newPort(rule)
			*p.of(c.gained()) = tc.seen
			if got := c.between(rule, c.moved, p); got != want {
				t.Errorf("%s is certain of %v: between by rule %d: %t, want %t", tc.name, place, rule, got, want)
			}
		}
	}
}

// What came and went in one tick is one turn where the port is known to have such turns
// and the connection rested after an answer.
func TestWhenATurnIsPlain(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		times, ends  int // that turn was seen, places where answers end
		segments     uint32
		accepted     bool
		turns        int
		strict, wide bool
	}{
		{"known", 3, 1, 1, true, 9, true, true},
		{"known, in two segments", 3, 1, 2, true, 9, false, true},
		{"not known", 0, 1, 1, true, 9, true, true},
		{"not known, in two segments", 0, 1, 2, true, 9, false, false},
		{"known, after a rest that was not", 3, 1, 1, false, 9, false, true},
		{"not known, nor the rest", 0, 1, 1, false, 9, false, false},
		{"too seldom for so many places, in two segments", 3, 4 * placesForOne, 2, true, 9, false, false},
		{"perhaps a handshake", 3, 1, 1, true, 2, false, false},
	} {
		for rule, want := range map[Rule]bool{Strict: tc.strict, Wide: tc.wide} {
			p := newPort(rule)
			p.ends = tc.ends
			p.turns[turn{pair{100, 300, 1}, tc.segments}] = tc.times
			c := &connection{settled: true, accepted: tc.accepted, turns: tc.turns}
			if got := c.turnIsPlain(change{in: true, out: true, received: 100, written: 300, segments: tc.segments, sent: 1}, p); got != want {
				t.Errorf("%s: by rule %d %t, want %t", tc.name, rule, got, want)
			}
		}
	}
}

// Nor is it perhaps a handshake where that is over.
func TestPlainConnection(t *testing.T) {
	t.Parallel()
	c := &connection{turns: 1}
	if !c.mayShakeHands() {
		t.Error("a new connection can not shake hands")
	}
	c.plain = true
	if c.mayShakeHands() {
		t.Error("one that is plain can")
	}
	// What is learned from later has to have begun somewhere known, too.
	p := newPort(Strict)
	same := turn{pair{100, 300, 1}, 1}
	c = &connection{}
	c.teach(p, same, basis{true, false}, true)
	c.teach(p, same, basis{true, false}, true)
	if s := p.pairs[same.pair]; s.certain != 2 || s.strict != 0 {
		t.Errorf("%+v of two turns whose beginning is not known for certain", *s)
	}
}

// How many requests have begun, as far as it is known.
func TestRequestsThatHaveBegun(t *testing.T) {
	t.Parallel()
	both := change{in: true, out: true, received: 100, written: 300, segments: 1, sent: 1}
	several := both
	several.segments, several.sent = 2, 2
	halves := both
	halves.segments = 2
	large := both
	large.sent = 2
	spoken := Figures{Received: 100, DataReceived: 1, Written: 300, DataSent: 1}
	for _, tc := range []struct {
		name         string
		connection   connection
		change       change
		strict, wide int
		perhaps      bool
	}{
		{"after an answer", connection{last: spoken, order: answered}, both, 1, 1, false},
		{"a part, or another one", connection{last: spoken, order: owing}, both, 0, 0, true},
		{"nobody knows what it was at", connection{last: spoken, order: undecided}, both, 1, 1, false},
		{"a part that was asked for, in an order that is not known", connection{last: spoken, sinceIn: 290, order: undecided}, both, 0, 0, true},
		{"the first of all", connection{}, both, 0, 0, false},
		{"the first of all, and perhaps the second", connection{}, halves, 1, 1, false},
		{"several at once", connection{last: spoken, order: answered}, several, 2, 1, false},
		{"in two segments", connection{last: spoken, order: answered}, halves, 1, 1, false},
		{"with a large answer", connection{last: spoken, order: answered}, large, 1, 1, false},
	} {
		for rule, want := range map[Rule]int{Strict: tc.strict, Wide: tc.wide} {
			c := tc.connection
			c.pace.take(&c, tc.change, rule)
			if c.pace.asked != want || c.pace.perhaps != tc.perhaps {
				t.Errorf("%s: %d by rule %d, perhaps another %t; want %d, %t", tc.name, c.pace.asked, rule, c.pace.perhaps, want, tc.perhaps)
			}
		}
	}
}

// How closely a turn was watched goes by the looks since its request, but for those of
// the rest after it.
func TestHowCloselyATurnIsWatched(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                  string
		request, answer, rest time.Duration // how long the look that shows it comes after the one before
		want                  [len(watched)]int
	}{
		{"as a hook does", 20 * ms, 20 * ms, 20 * ms, [...]int{1, 1, 1}},
		{"the rest is not", 20 * ms, 20 * ms, 95 * ms, [...]int{1, 1, 1}},
		{"the answer is not", 20 * ms, 50 * ms, 20 * ms, [...]int{0, 1, 1}},
		{"nor the request", 70 * ms, 20 * ms, 20 * ms, [...]int{0, 0, 1}},
		{"nothing is", 200 * ms, 20 * ms, 20 * ms, [...]int{0, 0, 0}},
	} {
		s := newSight(1)
		s.watch(0, turns(1, 70, 80)...)
		s.watch(0, nothing(pause))
		s.blink(0, tc.request, request(0, 100))
		before := s.c.wide.ports[8080].unpaused // of the turn that this one has ended
		s.blink(0, tc.answer, answer(0, 300))
		s.look(20 * ms)
		s.look(20 * ms)
		s.look(tc.rest)
		s.look(20 * ms)
		s.watch(0, request(0, 999))
		got := s.c.wide.ports[8080].unpaused
		for i := range got {
			got[i] -= before[i]
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
	p := newPort(Wide)
	p.unpaused = [...]int{unpausedTurns - 1, unpausedTurns, unpausedTurns}
	if p.pausesLess(59*ms) || !p.pausesLess(60*ms) {
		t.Error("turns that were watched by looks 60 ms apart tell of pauses of 60 ms and more")
	}
	p.unpaused[0]++
	if !p.pausesLess(ms) {
		t.Error("those watched closely do not tell of each rest")
	}
}

// What went out after something was owed can be the end of one answer and the beginning
// of the next, but where it is known as one turn, or is one segment.
func TestAskedOnWhileSomethingIsOwed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		rule   Rule
		order  order
		sent   uint32
		based  bool
		strict int
		want   bool
	}{
		{"in two segments", Strict, owing, 2, true, 0, true},
		{"nobody knows what it was at", Strict, undecided, 2, true, 0, true},
		{"by the wide rule", Wide, owing, 2, true, 0, false},
		{"nothing is owed", Strict, answered, 2, true, 0, false},
		{"two requests", Strict, answered, 2, true, 0, true},
		{"two requests, by the wide rule", Wide, answered, 2, true, 0, true},
		{"in one segment", Strict, owing, 1, true, 0, false},
		{"known", Strict, owing, 2, true, 3, false},
		{"hardly known", Strict, owing, 2, true, 2, true},
		{"known, from a beginning that is not", Strict, owing, 2, false, 3, true},
	} {
		p := newPort(tc.rule)
		*p.of(pair{100, 300, 1}) = seen{strict: tc.strict}
		c := &connection{order: tc.order, basis: basis{based: tc.based}}
		f := Figures{Received: 100, Written: 300, DataReceived: 1, DataSent: tc.sent}
		ch := change{in: true, out: true, segments: 1, sent: tc.sent}
		if strings.HasPrefix(tc.name, "two requests") {
			ch.segments = 2
		}
		if got := c.mayBeAskedOn(&f, ch, p); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

// Where each segment but one has to be full to hold all that went out, none of them is a
// "100 Continue".
func TestAskedOnInFullSegments(t *testing.T) {
	t.Parallel()
	const size = 1448
	for _, tc := range []struct {
		name    string
		size    uint32
		written uint64
		sent    uint32
		unsent  uint32
		want    bool // perhaps asked on
	}{
		{"two full ones and an answer", size, 2*size + leastAnswer, 3, 0, false},
		{"two full ones and less", size, 2*size + leastAnswer - 1, 3, 0, true},
		{"one that would not have to be full", size, 2*size + leastAnswer, 4, 0, true},
		{"more that was not sent", size, 2*size + leastAnswer, 3, 1, true},
		{"of a size that is not known", 0, 2*size + leastAnswer, 3, 0, true},
	} {
		c := &connection{order: answered, basis: basis{based: true}}
		f := Figures{Received: 2000, Written: tc.written, DataReceived: 2, DataSent: tc.sent, SegmentSize: tc.size, Unsent: tc.unsent}
		ch := change{in: true, out: true, segments: 2, sent: tc.sent, written: tc.written}
		if got := c.mayBeAskedOn(&f, ch, newPort(Strict)); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.name, got, tc.want)
		}
	}
}

// Where a connection rests in doubt and more comes in, it is not known what that is.
func TestMoreAfterARestInDoubt(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, turns(4, 100, 300)...)
	s.watch(0, request(pause, 50), acknowledgement(40*ms)) // a part
	s.blink(0, ms, request(ms, 50), acknowledgement(0), answer(0, 300))
	s.watch(0, nothing(pause), request(0, 100))
	if kept := s.c.wide.connections[key{s.lines[0].Local, s.lines[0].Peer}]; kept.based {
		t.Error("the next turn begins at a known place")
	}
}
