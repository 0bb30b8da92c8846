package requests

import (
	"testing"
	"time"
)

// sight looks at some lines of one port, when it is told to.
type sight struct {
	c     *Classifier
	lines []*line
	now   time.Duration
}

func newSight(n int) *sight {
	s := &sight{c: New()}
	for i := range n {
		s.lines = append(s.lines, newLine(uint16(i+1)))
	}
	return s
}

// look is what is said of all lines so much later.
func (s *sight) look(after time.Duration) []Verdict {
	s.now += after
	var all []Figures
	for _, l := range s.lines {
		all = append(all, l.at(s.now))
	}
	return s.c.Look(time.Unix(1000, 0).Add(s.now), all)
}

// watch does the steps on line i, and looks often.
func (s *sight) watch(i int, steps ...step) (last Verdict) {
	for _, step := range steps {
		left := step.after
		for ; left > lookEvery; left -= lookEvery {
			s.look(lookEvery)
		}
		s.now += left
		step.do(s.lines[i], s.now)
		last = s.look(ms)[i]
	}
	return last
}

// blink does the steps on line i, and looks only after them.
func (s *sight) blink(i int, after time.Duration, steps ...step) Verdict {
	for _, step := range steps {
		s.now += step.after
		step.do(s.lines[i], s.now)
	}
	return s.look(after)[i]
}

// again is data that is sent once more.
func again(after time.Duration) step {
	return step{after, func(l *line, now time.Duration) {
		l.DataSent++
		l.Retransmits++
		l.sent = now
	}}
}

// Two turns, of which no look saw where the first ended, are not one: another answer
// that is as long as both can go on from there.
func TestTwoTurnsAreNotOne(t *testing.T) {
	t.Parallel()
	turn := []step{request(pause, 100), answer(10*ms, 300), nothing(40 * ms)}
	s := newSight(1)
	s.watch(0, repeat(6, turn...)...)
	for range 4 {
		s.blink(0, ms, request(ms, 100), answer(tick, 300), request(2*tick, 100))
		s.watch(0, acknowledgement(40*ms), answer(10*ms, 300), nothing(40*ms))
		s.watch(0, turn...)
	}
	for at, seen := range s.c.wide.ports[8080].pairs {
		if at.received != 100 && (seen.complete > 0 || seen.certain > 0) {
			t.Errorf("%d turns of %+v have taught something", seen.complete, at)
		}
	}
	v := s.watch(0, request(pause, 200), answer(10*ms, 600), nothing(pause))
	if v.Strict == Between {
		t.Errorf("%s at a place where two answers have ended, and never one", v.Strict)
	}
}

// A late look can have missed an answer's end and a whole turn behind it: what it
// began with is no place to count from.
func TestALateLookIsNoBeginning(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, repeat(4, request(pause, 70), answer(10*ms, 80), nothing(40*ms))...)
	for range 4 {
		s.watch(0, request(pause, 100), answer(10*ms, 200), nothing(40*ms)) // half of it
		s.blink(0, 50*ms, answer(100*ms, 200), request(10*ms, 150), answer(10*ms, 300))
		s.watch(0, nothing(40*ms), request(pause, 70), answer(10*ms, 80), nothing(40*ms))
	}
	v := s.watch(0, request(pause, 150), answer(10*ms, 500), nothing(pause))
	if v.Strict == Between {
		t.Errorf("%s where nothing has ever ended", v.Strict)
	}
}

// Where the clock tells that a request came last, it did, though the kernel is late to
// acknowledge it: the machine may have stood still.
func TestALateAcknowledgementIsNoAnswer(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, request(pause, 100), answer(10*ms, 250), nothing(pause)) // half of it
	for range 6 {
		s.blink(0, ms, answer(ms, 200), request(2*tick, 100))
		if v := s.watch(0, nothing(300*ms)); v.Strict != Owes {
			t.Fatalf("%s, want owes", v.Strict)
		}
		if v := s.watch(0, answer(ms, 250), nothing(pause)); v.Strict == Between || v.Wide == Between {
			t.Fatalf("strict %s, wide %s in the middle of an answer", v.Strict, v.Wide)
		}
	}
}

// What was sent again may be the end of an answer that a loss has held up, and the
// request the next one, even where no answer has ever paused.
func TestATurnWithALossIsNotPlain(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, everNew(25)...)
	s.watch(0, request(pause, 900), answer(10*ms, 500), nothing(300*ms))
	s.blink(0, ms, answer(ms, 200), again(0), request(0, 100))
	if v := s.watch(0, acknowledgement(40*ms), nothing(pause)); v.Wide == Between {
		t.Errorf("%s while a request is in flight", v.Wide)
	}
}

// A rest that was between is where the next answer begins, though another connection
// has made that doubtful by then: if it goes on where others have ended, this is noticed.
func TestARestThatWasBetweenIsABeginning(t *testing.T) {
	t.Parallel()
	turn := []step{request(pause, 100), answer(10*ms, 300), nothing(40 * ms)}
	s := newSight(2)
	s.watch(0, repeat(25, turn...)...)
	if v := s.watch(0, request(pause, 111), answer(10*ms, 333), nothing(40*ms)); v.Wide != Between {
		t.Fatalf("%s, want between", v.Wide)
	}
	s.watch(1, request(pause, 77), answer(10*ms, 501), answer(pause, 502), nothing(40*ms))
	s.blink(0, ms, request(ms, 100), answer(0, 200), answer(0, 100))
	s.watch(0, nothing(pause), answer(ms, 400), nothing(pause))
	if v := s.watch(1, append(turn, turn...)...); v.Wide == Between {
		t.Errorf("%s where an answer has gone on", v.Wide)
	}
}

// On a slow network a kernel takes longer to acknowledge what nothing answers.
func TestSlowNetworksAcknowledgeLate(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.lines[0].RoundTrip = 200 * ms
	s.watch(0, everNew(25)...)
	s.watch(0, request(pause, 900), answer(10*ms, 500), nothing(300*ms))
	s.blink(0, ms, answer(ms, 100), answer(0, 100), request(0, 50), request(0, 50))
	for range 15 {
		if v := s.watch(0, nothing(lookEvery)); v.Strict == Between || v.Wide == Between {
			t.Fatalf("strict %s, wide %s while a request is in flight", v.Strict, v.Wide)
		}
	}
	if v := s.watch(0, acknowledgement(ms), nothing(time.Second)); v.Strict == Between || v.Wide == Between {
		t.Errorf("strict %s, wide %s while a request is in flight", v.Strict, v.Wide)
	}
}

// A look that was late within an answer can have missed a pause, however soon the
// request was seen.
func TestAPauseThatALateLookMissed(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, everNew(4)...)
	for i := range uint64(40) {
		s.watch(0, request(pause, 200+i))
		s.blink(0, 10*ms, answer(10*ms, 500+i), answer(150*ms, 100))
		s.watch(0, nothing(40*ms))
	}
	if v := s.watch(0, request(pause, 900), answer(10*ms, 500), nothing(pause)); v.Wide == Between {
		t.Errorf("%s on a port that pauses where nobody looks", v.Wide)
	}
}
