package requests

import (
	"testing"
	"time"
)

// turns are plain turns of one size, each of which ends where it was seen to.
func turns(n int, in, out uint64) []step {
	return repeat(n, request(pause, in), answer(10*ms, out), nothing(40*ms))
}

// Where an answer once went on, none is known to end, however many did afterwards.
func TestAPlaceWhereAnAnswerWentOn(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, turns(1, 70, 80)...)
	s.watch(0, request(pause, 100), answer(10*ms, 300), answer(pause, 300), nothing(40*ms))
	s.watch(0, turns(6, 100, 300)...)
	if v := s.watch(0, turns(1, 100, 300)...); v.Strict == Between || v.Wide == Between {
		t.Errorf("strict %s, wide %s", v.Strict, v.Wide)
	}
	if v := s.watch(0, turns(6, 70, 80)...); v.Strict != Between {
		t.Errorf("%s at another place, want between", v.Strict)
	}
}

// Where it is not known what an answer began with, nothing tells where it ends.
func TestAnAnswerWithoutABeginning(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		look []step // what one look sees behind an answer
		then []step
	}{
		{"two turns in one look", []step{request(ms, 100), answer(tick, 300), request(2*tick, 100)}, nil},
		{"a beginning that is lost", []step{tooEarly(ms)}, []step{request(pause, 100), atOnce(answer(0, 300), request(0, 100))}},
		{"one that is lost behind a turn", []step{request(ms, 100), answer(tick, 300), tooEarly(tick)}, []step{request(pause, 100)}},
	} {
		s := newSight(1)
		// Two and a half of the turns that follow, and one and a half.
		s.watch(0, turns(6, 300, 750)...)
		s.watch(0, turns(6, 200, 450)...)
		s.watch(0, turns(6, 100, 300)...)
		s.blink(0, ms, tc.look...)
		s.watch(0, append(tc.then, acknowledgement(40*ms))...)
		// Half of the second answer comes.
		if v := s.watch(0, answer(10*ms, 150), nothing(pause)); v.Strict == Between {
			t.Errorf("%s: %s in the middle of an answer", tc.name, v.Strict)
		}
	}
}

// Two requests of a client that does not wait are not one, though no look saw the
// server rest between them: one and a half answers can be as long as another whole one.
func TestTurnsWithoutARestBetween(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		then []step // behind a first request of two
	}{
		{"an answer and a request in one look", []step{atOnce(answer(20*ms, 300), request(0, 100))}},
		{"a request soon after an answer", []step{answer(20*ms, 300), request(5*ms, 100)}},
	} {
		s := newSight(1)
		s.watch(0, turns(6, 300, 750)...)
		s.watch(0, turns(6, 200, 450)...)
		s.watch(0, turns(6, 100, 300)...)
		s.watch(0, request(pause, 100), acknowledgement(40*ms))
		s.blink(0, ms, tc.then...)
		s.watch(0, acknowledgement(40*ms))
		if v := s.watch(0, answer(10*ms, 150), nothing(pause)); v.Strict == Between {
			t.Errorf("%s: %s in the middle of an answer", tc.name, v.Strict)
		}
	}
}

// A beginning that was only likely while no answer had paused is none once one has.
func TestALikelyBeginning(t *testing.T) {
	t.Parallel()
	s := newSight(2)
	s.watch(1, turns(6, 100, 450)...)
	s.watch(0, request(pause, 100), answer(10*ms, 250), nothing(pause)) // half of it
	s.blink(0, ms, answer(ms, 200), request(ms, 100), answer(2*tick, 250))
	s.watch(1, request(40*ms, 77), answer(10*ms, 501), answer(pause, 502))
	for range 20 {
		if v := s.look(lookEvery)[0]; v.Strict == Between || v.Wide == Between {
			t.Fatalf("strict %s, wide %s in the middle of an answer", v.Strict, v.Wide)
		}
	}
}

// The first answers of a connection are believed by what the port knows of their size,
// and not because others did not pause: another client can ask for something else.
func TestTheFirstAnswersOfAConnection(t *testing.T) {
	t.Parallel()
	s := newSight(2)
	s.watch(0, everNew(30)...)
	for i := range uint64(3) {
		if v := s.watch(1, request(pause, 70+i), answer(10*ms, 500+i), nothing(2*pause)); v.Wide != Unknown {
			t.Errorf("%s after answer %d, want unknown", v.Wide, i+1)
		}
	}
	if v := s.watch(1, request(pause, 80), answer(10*ms, 510), nothing(2*pause)); v.Wide != Between {
		t.Errorf("%s after the fourth answer, want between", v.Wide)
	}
}

// An answer is known by its size once three of it have ended.
func TestHowOftenAnAnswerHasToEnd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		took time.Duration
	}{{"seen to begin", 10 * ms}, {"in one look", 2 * tick}, {"in one tick", 0}} {
		s := newSight(1)
		s.watch(0, turns(6, 100, 300)...)
		for i, want := range []Class{Unknown, Unknown, Unknown, Between} {
			if tc.took < 10*ms {
				s.watch(0, nothing(pause))
				s.blink(0, ms, request(ms, 100), answer(tc.took, 400))
			} else {
				s.watch(0, request(pause, 100), answer(tc.took, 400))
			}
			if v := s.watch(0, nothing(2*pause)); v.Strict != want {
				t.Errorf("%s: %s after %d others of its size, want %s", tc.name, v.Strict, i, want)
			}
		}
	}
}

// The first answer of a connection can pause as well, unless that is TLS's handshake.
func TestAPauseInAFirstAnswer(t *testing.T) {
	t.Parallel()
	s := newSight(2)
	s.watch(0, everNew(30)...)
	s.watch(1, request(pause, 77), answer(10*ms, 501), answer(pause, 502))
	if v := s.watch(0, request(pause, 78), answer(10*ms, 503), nothing(pause)); v.Wide == Between {
		t.Errorf("%s on a port that has paused", v.Wide)
	}
}

// A look that saw something sent again is no still one, though all of it has arrived.
func TestWhatIsSentAgainMoves(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, turns(6, 100, 300)...)
	s.watch(0, request(pause, 100), unacknowledged(10*ms, 300))
	if v := s.blink(0, ms, again(lookEvery), acknowledged(ms)); v.Strict != Unknown {
		t.Errorf("%s at the look that saw it, want unknown", v.Strict)
	}
	if v := s.look(lookEvery)[0]; v.Strict != Between {
		t.Errorf("%s at the next look, want between", v.Strict)
	}
}

// A long answer's many pauses, each at a place of its own, leave room for others to be
// learned.
func TestPlacesOfLongAnswers(t *testing.T) {
	t.Parallel()
	s := newSight(2)
	s.watch(0, turns(12, 120, 300)...)
	for n := range uint64(2 * maxPairs / 100) {
		s.watch(1, request(pause, 900+7*n))
		for part := range uint64(100) {
			s.watch(1, answer(70*ms, 150+(n*n+part*part)%97))
		}
	}
	for _, size := range []uint64{300, 400} {
		if v := s.watch(0, turns(8, 120, size)...); v.Strict != Between || v.Wide != Between {
			t.Errorf("strict %s, wide %s after %d bytes, want between", v.Strict, v.Wide, size)
		}
	}
}
