package requests

import (
	"testing"
	"time"
)

// The last part of an answer and the next request come in one look: the answer had
// paused, which is known if the request surely came last.
func TestLastPartAndNextRequest(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		steps []step
		later []step
		want  bool
		class Class
	}{
		{"the request came later", []step{answer(tick, 300), request(2*tick, 100)}, nil, true, Owes},
		{"the request was not answered", []step{answer(tick, 300), request(0, 100)}, []step{acknowledgement(40 * ms)}, true, Owes},
		{"acknowledged long afterwards", []step{answer(tick, 300), request(0, 100)}, []step{acknowledgement(pause)}, false, Between},
		{"acknowledged, but because more came", []step{answer(tick, 300), request(0, 100)}, []step{nothing(20 * ms), probe(20 * ms)}, false, Between},
		{"the answer came later", []step{request(tick, 100), answer(2*tick, 300)}, nil, false, Unknown},
		{"two requests", []step{request(tick, 100), answer(0, 300), request(2*tick, 100)}, nil, false, Owes},
	} {
		s := newSight(1)
		s.watch(0, turns(4, 100, 300)...)
		s.watch(0, request(pause, 100), answer(10*ms, 300), nothing(pause))
		v := s.blink(0, ms, tc.steps...)
		if tc.later != nil {
			v = s.watch(0, tc.later...)
		}
		if paused := s.c.wide.ports[8080].paused; paused != tc.want || v.Wide != tc.class {
			t.Errorf("%s: paused %t, want %t; %s, want %s", tc.name, paused, tc.want, v.Wide, tc.class)
		}
		kept := s.c.wide.connections[key{s.lines[0].Local, s.lines[0].Peer}]
		if tc.want && (kept.based || kept.sinceIn != kept.last.Written) {
			t.Errorf("%s: the request begins at a known place: %t; what came before counts as its answer: %t", tc.name, kept.based, kept.sinceIn != kept.last.Written)
		}
	}
}

// An acknowledgement that comes between two looks far apart can be that of a probe.
func TestAcknowledgedAtSomeTime(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, turns(4, 100, 300)...)
	s.blink(0, ms, nothing(pause), answer(0, 300), request(0, 100))
	s.lines[0].acknowledge()
	if s.look(150 * ms); s.c.wide.ports[8080].paused {
		t.Error("taken for a pause")
	}
}

// What is written, but was not sent before the request came, is no part of the answer before.
func TestWrittenButNotSent(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, turns(4, 100, 300)...)
	s.blink(0, 0, nothing(pause), request(0, 100), step{0, func(l *line, _ time.Duration) { l.Written, l.Unsent = l.Written+300, 300 }})
	if s.c.wide.ports[8080].paused {
		t.Error("taken for a pause")
	}
}

// Several turns between two looks are not one, whatever they add up to.
func TestTurnsInOneLook(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, turns(6, 100, 200)...)
	for range 4 {
		s.blink(0, ms, request(ms, 100), answer(tick, 400), request(tick, 100), answer(tick, 400))
		s.watch(0, nothing(pause))
		s.watch(0, turns(2, 100, 200)...)
	}
	s.watch(0, request(pause, 70), answer(10*ms, 80), answer(pause, 80), nothing(pause)) // an answer that pauses
	s.blink(0, ms, request(ms, 100), answer(tick, 200), request(tick, 100), answer(tick, 600))
	if v := s.watch(0, nothing(pause)); v.Strict == Between {
		t.Errorf("%s at bytes where no answer ended", v.Strict)
	}
}

// A connection whose first turn was over by the first look, in one tick: the next request
// is its second.
func TestSecondRequestOfANewConnection(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, request(pause, 70), answer(10*ms, 80), answer(pause, 80), nothing(40*ms)) // an answer that pauses
	s.watch(0, turns(9, 150, 600)...)
	s.lines = append(s.lines, newLine(9))
	s.blink(1, ms, request(ms, 50), answer(0, 200))
	s.blink(1, ms, request(20*ms, 100), answer(0, 200))
	s.watch(1, nothing(pause))
	if v := s.watch(1, answer(ms, 200), nothing(pause)); v.Strict == Between || v.Wide == Between {
		t.Errorf("strict %s, wide %s in the middle of an answer", v.Strict, v.Wide)
	}
}
