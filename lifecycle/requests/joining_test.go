package requests

import (
	"testing"
	"time"
)

// joined is a connection that was there before anybody looked, and what came and went.
func joined(peer uint16, before ...step) *line {
	l := newLine(peer)
	l.acknowledge() // the handshake's
	for _, s := range before {
		s.do(l, 0)
	}
	return l
}

// Where the first look came in the middle of a turn is not where it began.
func TestTheMiddleIsNoBeginning(t *testing.T) {
	t.Parallel()
	s := &sight{c: New()}
	for i := range uint16(6) {
		s.lines = append(s.lines, joined(i+1, request(0, 50)))
	}
	for i := range s.lines {
		s.watch(i, request(50*ms, 50), answer(10*ms, 300), nothing(40*ms), request(ms, 100), answer(10*ms, 700), nothing(40*ms))
	}
	s.lines = append(s.lines, newLine(99))
	s.look(ms)
	turn := []step{request(pause, 20), answer(10*ms, 90), nothing(40 * ms)}
	s.watch(6, repeat(4, turn...)...)
	if v := s.watch(6, request(pause, 50), answer(10*ms, 300), nothing(pause)); v.Strict == Between {
		t.Errorf("%s where no answer was seen to end", v.Strict)
	}
}

// What nobody saw come is decided by the clock alone; where that does not tell, a
// request that was not answered at all is owed.
func TestWhatWasThereBefore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		line *line
		more func(*Figures)
		want Class
	}{
		{"never answered, in the tick of the handshake", joined(1, request(0, 100)), nil, Owes},
		{"unread, but not counted yet", joined(1), func(f *Figures) { f.ReceiveQueue = 100 }, Owes},
		{"answered in the tick of the request, perhaps", joined(1, request(0, 100), answer(0, 300)), nil, Unknown},
		{"segments that overtook others, long ago", joined(1, tooEarly(0), request(0, 100), answer(8*ms, 300)), nil, Unknown},
	} {
		l, c := tc.line, New()
		for at := time.Second; at < 3*time.Second; at += lookEvery {
			f := l.at(at)
			if tc.more != nil {
				tc.more(&f)
			}
			if v := c.Look(time.Unix(1000, 0).Add(at), []Figures{f})[0]; v.Strict != tc.want || v.Wide != tc.want {
				t.Errorf("%s, after %s: strict %s, wide %s, want %s", tc.name, at, v.Strict, v.Wide, tc.want)
				break
			}
		}
	}
}
