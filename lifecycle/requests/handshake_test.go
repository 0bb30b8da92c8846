package requests

import "testing"

// greet is a new connection on which TLS's handshake has been seen up to the client's
// last word.
func (s *sight) greet() int {
	s.lines = append(s.lines, newLine(uint16(100+len(s.lines))))
	i := len(s.lines) - 1
	s.look(lookEvery)
	s.watch(i, request(ms, 517), answer(3*ms, 1500))
	return i
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
	for _, step := range []step{nothing(lookEvery), acknowledgement(lookEvery), nothing(pause)} {
		if v := s.watch(i, step); v.Strict == Between || v.Wide == Between {
			t.Fatalf("strict %s, wide %s with a request in flight", v.Strict, v.Wide)
		}
	}
}

// A first request that is repeated is no handshake, which is learned from at once.
func TestFirstTurnsThatRepeat(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		in   []uint64
		want Class
	}{
		{"the same", []uint64{100, 100}, Between},
		{"others", []uint64{100, 120}, Unknown},
	} {
		s := newSight(0)
		var v Verdict
		for n := range 4 {
			s.lines = append(s.lines, newLine(uint16(n+1)))
			s.look(lookEvery)
			for _, in := range tc.in {
				v = s.watch(n, request(pause, in), answer(10*ms, 300), nothing(40*ms))
			}
			s.watch(n, request(pause, 999), answer(10*ms, 999))
		}
		if v.Strict != tc.want {
			t.Errorf("%s: %s at the second turn of the fourth connection, want %s", tc.name, v.Strict, tc.want)
		}
	}
}
