package requests

import "testing"

// greet is a new connection on which TLS's handshake has come up to before the client's
// last word, and was seen to rest there.
func (s *sight) greet() int {
	i := s.connect()
	s.watch(i, request(ms, 517), answer(3*ms, 1500), nothing(3*lookEvery))
	return i
}

// connect is a new connection.
func (s *sight) connect() int {
	s.lines = append(s.lines, newLine(uint16(100+len(s.lines))))
	s.look(lookEvery)
	return len(s.lines) - 1
}

// The head of a first request comes with the client's last word, which the server answers
// with tickets, and the body later: where the tickets ended a request may be in flight, as
// often as it was ended by more of it.
func TestTicketsBeforeTheBody(t *testing.T) {
	t.Parallel()
	s := newSight(0)
	for n := range 8 {
		i := s.greet()
		if v := s.watch(i, request(20*ms, 280), answer(0, 250), nothing(pause)); v.Strict == Between || v.Wide == Between {
			t.Fatalf("strict %s, wide %s before the body of upload %d", v.Strict, v.Wide, n+1)
		}
		s.watch(i, request(ms, 500), acknowledgement(0), answer(50*ms, 205), nothing(40*ms))
		s.watch(i, turns(1, 60, 205)...)
	}
}

// The client's last word and a whole request, tickets, and the answer together with the
// next request: it looks like a turn of the known kind, and is none.
func TestTicketsBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	s := newSight(2)
	s.watch(0, turns(8, 60, 205)...)
	s.watch(1, turns(8, 60, 600)...)
	for range 4 { // what is known to follow a handshake
		s.watch(s.greet(), append([]step{request(20*ms, 80), answer(0, 250), nothing(pause)}, turns(6, 60, 205)...)...)
	}
	i := s.greet()
	s.watch(i, request(20*ms, 140), answer(0, 250), nothing(600*ms))
	s.blink(i, ms, answer(2*ms, 205), request(0, 60))
	for n := range 5 { // and so on: the client asks again as soon as it has an answer
		for _, step := range []step{nothing(lookEvery), nothing(lookEvery)} {
			if v := s.watch(i, step); v.Strict == Between || v.Wide == Between {
				t.Fatalf("strict %s, wide %s with request %d in flight", v.Strict, v.Wide, n+2)
			}
		}
		s.blink(i, ms, answer(2*ms, 205), request(0, 60))
	}
}

// What may have been a handshake teaches the strict rule nothing before it is repeated, or
// known from other turns.
func TestWhatMayBeAHandshake(t *testing.T) {
	t.Parallel()
	hello, other := turns(1, 517, 1500), turns(1, 60, 80)
	twice := func(in, out uint64) []step {
		return []step{request(pause, in/2), request(20*ms, in/2), answer(10*ms, out), nothing(40 * ms)}
	}
	for _, tc := range []struct {
		name   string
		turns  [][]step
		strict int // how often the strict rule has seen 100 bytes in and 300 out
	}{
		{"the first request", [][]step{turns(1, 100, 300)}, 1},
		{"the first request in two segments", [][]step{twice(100, 300)}, 0},
		{"after a hello", [][]step{hello, turns(1, 100, 300)}, 0},
		{"twice after a hello", [][]step{hello, turns(2, 100, 300)}, 2},
		{"not twice in turn", [][]step{hello, turns(1, 100, 300), other, turns(1, 100, 300)}, 1},
		{"after a hello, and told later", [][]step{hello, turns(1, 100, 300), {nothing(pause), atOnce(request(0, 50), answer(0, 400)), nothing(pause)}}, 0},
		{"the fourth turn", [][]step{hello, other, turns(1, 60, 90), turns(1, 100, 300)}, 1},
		{"after many segments", [][]step{hello, repeat(handshakeSegments, request(20*ms, 10)), {answer(10*ms, 80), nothing(40 * ms)}, turns(1, 100, 300)}, 1},
		{"after one that repeats the first", [][]step{turns(2, 60, 80), turns(1, 100, 300)}, 1},
	} {
		s := newSight(0)
		i := s.connect()
		for _, steps := range tc.turns {
			s.watch(i, steps...)
		}
		s.watch(i, request(pause, 999))
		if got := s.c.strict.ports[8080].pairs[pair{100, 300, 1}]; got == nil || got.strict != tc.strict {
			t.Errorf("%s: %+v, want %d for certain", tc.name, got, tc.strict)
		}
	}
}

// Where the first request is one that is known from other connections, it is no hello, and
// what follows is learned from.
func TestFirstTurnThatIsKnown(t *testing.T) {
	t.Parallel()
	s := newSight(0)
	for range 4 {
		s.watch(s.connect(), append(turns(1, 70, 80), turns(3, 100, 300)...)...)
	}
	i := s.connect()
	s.watch(i, append(turns(1, 77, 88), append(turns(1, 100, 300), turns(1, 111, 333)...)...)...)
	s.watch(i, request(pause, 999))
	if got := s.c.strict.ports[8080].pairs[pair{111, 333, 1}]; got == nil || got.strict != 1 {
		t.Errorf("%+v of the turn after a known one, want one for certain", got)
	}
}
