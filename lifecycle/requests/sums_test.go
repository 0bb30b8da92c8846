package requests

import "testing"

// Two answers without a rest between, which are as long as a whole one and a part of a
// stream: the sum of several turns is no evidence on a port that pauses.
func TestSumsOfTurnsAreNotTrusted(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, request(pause, 100), answer(10*ms, 600), answer(pause, 900), nothing(pause)) // the first stream: it pauses at 600
	two := func(a, b uint64) {
		s.watch(0, request(pause, 100), acknowledgement(40*ms))
		s.blink(0, ms, answer(20*ms, a), request(5*ms, 100))
		s.watch(0, acknowledgement(40*ms))
		s.watch(0, answer(10*ms, b), nothing(pause))
	}
	s.watch(0, turns(6, 100, 200)...)
	for range 4 {
		two(400, 400)
		s.watch(0, turns(2, 100, 200)...)
	}
	s.watch(0, request(pause, 100), acknowledgement(40*ms))
	s.blink(0, ms, answer(20*ms, 200), request(5*ms, 100))
	s.watch(0, acknowledgement(40*ms))
	v := s.watch(0, answer(10*ms, 600), nothing(pause))
	if v.Strict == Between || v.Wide == Between {
		t.Errorf("strict %s wide %s in the middle of a second stream", v.Strict, v.Wide)
	}
}

// A look can miss a socket that lives: the one after it does not see a new connection.
func TestConnectionThatOneLookMissed(t *testing.T) {
	t.Parallel()
	s := newSight(2)
	s.watch(0, turns(6, 200, 600)...)
	s.watch(1, turns(1, 100, 200)...)
	s.watch(1, request(pause, 100), answer(10*ms, 400), nothing(40*ms)) // the first part
	both := s.lines
	s.lines = both[:1]
	s.look(lookEvery) // the dump misses line 1
	s.lines = both
	s.look(lookEvery)
	s.look(lookEvery)
	v := s.look(lookEvery)[1]
	if v.Strict == Between || v.Wide == Between {
		t.Errorf("strict %s wide %s in the middle of an answer", v.Strict, v.Wide)
	}
}
