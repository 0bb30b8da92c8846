package requests

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// inTwo is a request in two segments, of which the second one is acknowledged at once and
// answered so long after it.
func inTwo(answered time.Duration) []step {
	return []step{
		request(pause, 100), acknowledgement(40 * ms),
		request(160*ms, 1000), acknowledgement(0), answer(answered, 300),
	}
}

// answerAgain is an answer within the same tick of which a segment was lost on its way.
func answerAgain(size uint64) step {
	return step{0, func(l *line, now time.Duration) {
		l.out(now, size)
		l.Retransmits++
	}}
}

// A turn whose order cannot be told, since request, acknowledgement and answer come within
// one tick, is taken for one that the port is known to have, by the wide rule.
func TestTurnsThatAreLikely(t *testing.T) {
	t.Parallel()
	told, untold := inTwo(8*ms), inTwo(0)
	taught := repeat(6, told...)
	rest := []step{nothing(pause)}
	// The client sends the next request's first part as soon as it has the answer.
	oneAfterAnother := []step{
		request(160*ms, 1000), acknowledgement(0), answer(0, 300), request(0, 100), acknowledgement(0),
	}
	for _, tc := range []struct {
		name         string
		steps        []step
		strict, wide Class
	}{
		{"nothing is known", steps(repeat(6, untold...), rest), Unknown, Unknown},
		{"an order that can be told", steps(taught, rest), Between, Between},
		{"one that cannot", steps(taught, untold, rest), Unknown, Between},
		{"at work on the first part", steps(taught, untold[:2], rest), Owes, Owes},
		{"at work on both", steps(taught, untold[:4], rest), Owes, Owes},
		{"another size of the request", steps(taught, untold[:2], []step{request(160*ms, 900), acknowledgement(0), answer(0, 300)}, rest), Unknown, Unknown},
		{"another size of the answer", steps(taught, untold[:4], []step{answer(0, 200)}, rest), Unknown, Unknown},
		{"in three segments", steps(taught, untold[:2], []step{request(80*ms, 500), request(80*ms, 500), acknowledgement(0), answer(0, 300)}, rest), Unknown, Unknown},
		{"only after such as were not told", steps(repeat(6, append(inTwo(0), told...)...), untold, rest), Unknown, Unknown},
		{"after some that followed one that was told", steps(repeat(4, append(inTwo(0), append(told, told...)...)...), untold, rest), Unknown, Between},
		{"the first part is a request of its own, too", steps(taught, repeat(3, request(pause, 100), answer(10*ms, 70)), untold, rest), Unknown, Unknown},
		{"at work on the first part, after turns without a pause", steps(taught, untold[:2], repeat(4, oneAfterAnother...), rest), Unknown, Unknown},
		{"the same, from the middle of a request to that of the next", steps(taught, untold[:2], oneAfterAnother, []step{
			request(160*ms, 1000), acknowledgement(40 * ms), answer(60*ms, 300), request(0, 100), acknowledgement(0),
		}, rest), Unknown, Unknown},
		{"something was sent again", steps(taught, untold[:4], []step{answerAgain(300)}, rest), Unknown, Unknown},
		{"a turn that was not seen often", steps(repeat(6, request(pause, 70), answer(10*ms, 70)), told, told, untold, []step{nothing(2 * leastSilence)}), Unknown, Unknown},
		{"an answer has paused", steps(taught, []step{request(pause, 50), answer(10*ms, 70), answer(pause, 70)}, untold, rest), Unknown, Unknown},
		{"answers go on from there", steps(taught, told, []step{answer(pause, 70)}, untold, rest), Unknown, Unknown},
		{"a guess is no ground for the strict rule", steps(taught, repeat(20, untold...), rest), Unknown, Between},
		{"the turn after a guess, told again", steps(taught, untold, told, rest), Unknown, Between},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := []Class{last(Strict, tc.steps), last(Wide, tc.steps)}
			if diff := cmp.Diff([]Class{tc.strict, tc.wide}, got); diff != "" {
				t.Errorf("strict and wide (-want +got):\n%s", diff)
			}
		})
	}
}

// A connection whose beginning was not seen may have been at anything.
func TestTurnsOfAnUnknownBeginning(t *testing.T) {
	t.Parallel()
	taught := New()
	classes(Wide, taught, newLine(1), append(repeat(6, inTwo(8*ms)...), request(pause, 100)))
	for _, seen := range []bool{false, true} {
		c := New()
		c.wide.ports = taught.wide.ports
		l := newLine(2)
		turn := inTwo(0)
		if !seen {
			l.in(0, 100) // before the first look
			turn = turn[1:]
		}
		classes(Wide, c, l, append(turn, nothing(pause)))
		if kept := c.wide.connections[key{l.Local, l.Peer}]; kept.guessed != seen {
			t.Errorf("seen from its beginning %t: a guess is made %t", seen, kept.guessed)
		}
	}
}

// What was guessed teaches a port nothing that has to be certain.
func TestGuessesTeachNoOrder(t *testing.T) {
	t.Parallel()
	certain := func(steps []step) int {
		c := New()
		classes(Wide, c, newLine(1), append(steps, request(pause, 100)))
		return c.wide.ports[8080].certain
	}
	taught := repeat(6, inTwo(8*ms)...)
	before := certain(taught)
	if after := certain(steps(taught, repeat(5, inTwo(0)...))); after != before {
		t.Errorf("%d turns are certain after guesses, %d before", after, before)
	}
	if after := certain(steps(taught, inTwo(0), taught)); after != 2*before {
		t.Errorf("%d turns are certain after a guess and %d that are, want %d", after, before, 2*before)
	}
}

// Nor does a turn in one tick behind it, however sure it is by itself.
func TestAGuessIsNoSureBeginning(t *testing.T) {
	t.Parallel()
	c, l := New(), newLine(1)
	fast := atOnce(request(0, 100), answer(0, 300))
	classes(Wide, c, l, steps(repeat(6, inTwo(8*ms)...), inTwo(0), []step{nothing(pause), fast, nothing(pause)}))
	if p := c.wide.ports[8080]; p.certain != 6 {
		t.Errorf("%d turns are certain, want 6", p.certain)
	}
	if kept := c.wide.connections[key{l.Local, l.Peer}]; kept.sure {
		t.Error("the turn after a guess has a sure beginning")
	}
}

// A connection that was not there at the look before is known from its beginning, even if
// it has spoken by now; one that may have been there is not.
func TestConnectionsThatAreNew(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		before time.Duration // since the look before; 0: there was none
		want   Class
	}{
		{"looked at closely", lookEvery, Between},
		{"not looked at for long", closely + ms, Unknown},
		{"the first look", 0, Unknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := New()
			now := time.Unix(1000, 0)
			var class Class
			for i := range uint16(4) {
				l := newLine(1000 + i)
				l.in(0, 100)
				l.out(8*ms, 300)
				if tc.before > 0 {
					c.Look(now.Add(-tc.before), nil)
				}
				for at := time.Duration(0); at <= pause; at += lookEvery {
					class = c.Look(now.Add(at), []Figures{l.at(20*ms + at)})[0].Strict
				}
				l.in(220*ms, 100)
				c.Look(now.Add(pause+lookEvery), []Figures{l.at(240 * ms)})
				if tc.before == 0 {
					again := New() // of nothing but what was learned
					again.strict.ports = c.strict.ports
					c = again
				}
				now = now.Add(time.Hour)
			}
			if class != tc.want {
				t.Errorf("a connection's first pause is %s, want %s", class, tc.want)
			}
		})
	}
}

// The kernel tells nothing of a connection at first: that it is heard of later says nothing of when it began.
func TestConnectionsThatWereUntold(t *testing.T) {
	t.Parallel()
	for _, spoken := range []bool{false, true} {
		c := New()
		now := time.Unix(1000, 0)
		l := newLine(1)
		c.Look(now, []Figures{{Local: l.Local, Peer: l.Peer, Established: true}})
		if spoken {
			l.in(0, 100)
			l.out(8*ms, 300)
		}
		c.Look(now.Add(lookEvery), []Figures{l.at(lookEvery)})
		if based := c.strict.connections[key{l.Local, l.Peer}].based; based == spoken {
			t.Errorf("spoken %t: known from the beginning is %t", spoken, based)
		}
	}
}

// Of a new connection on which a part has overtaken the one before it nobody knows what came with what.
func TestNewConnectionsWithAHole(t *testing.T) {
	t.Parallel()
	for _, hole := range []bool{false, true} {
		c := New()
		now := time.Unix(1000, 0)
		c.Look(now, nil)
		l := newLine(1)
		l.in(0, 100)
		l.out(8*ms, 150)
		if hole {
			l.DataReceived++
			l.OutOfOrder++
		}
		c.Look(now.Add(lookEvery), []Figures{l.at(lookEvery)})
		if based := c.strict.connections[key{l.Local, l.Peer}].based; based == hole {
			t.Errorf("a hole %t: known from the beginning is %t", hole, based)
		}
	}
}
