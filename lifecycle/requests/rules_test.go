package requests

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// unacknowledged is an answer that arrives, and of which the client has not said so.
func unacknowledged(after time.Duration, size uint64) step {
	return step{after, func(l *line, now time.Duration) {
		l.out(now, size)
		l.Acknowledged -= size
		l.Unacknowledged = 1
	}}
}

func acknowledged(after time.Duration) step {
	return step{after, func(l *line, _ time.Duration) { l.Acknowledged, l.Unacknowledged = l.Written, 0 }}
}

// duplicate is a segment of a request that had come before.
func duplicate(after time.Duration) step {
	return step{after, func(l *line, _ time.Duration) { l.DataReceived++ }}
}

func steps(all ...[]step) []step {
	var joined []step
	for _, s := range all {
		joined = append(joined, s...)
	}
	return joined
}

// How many turns of ever-new sizes make a port believed by the wide rule.
func everNew(n int) []step {
	var all []step
	for i := range uint64(n) {
		all = append(all, request(pause, 100+i), answer(10*ms, 300+7*i))
	}
	return all
}

// An interim answer is no answer, also where the look before is long ago and has
// seen neither the end of the last answer nor the request.
func TestInterimAnswers(t *testing.T) {
	t.Parallel()
	turn := []step{request(pause, 200), answer(2*ms, 25), request(500*ms, 1000), answer(2*ms, 300)}
	// The look has the request's end, its answer and the next request, and no more.
	late := []step{request(30*ms, 1000), answer(0, 300), request(4*ms, 200), answer(pause, 25), nothing(2 * time.Second)}
	// The next request follows each answer at once.
	loop := []step{request(1500*ms, 1000), answer(1*ms, 300), request(1*ms, 200), answer(1*ms, 25)}
	// All of it in one tick, and the answer in one segment.
	tick := []step{atOnce(request(0, 1000), answer(0, 300), request(0, 200)), answer(30*ms, 25), nothing(2 * time.Second)}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"in one tick", steps(repeat(25, turn...), []step{request(pause, 200), answer(2*ms, 25), nothing(500 * ms)}, tick)},
		{"a look that is late", steps(repeat(25, turn...), []step{request(pause, 200), answer(2*ms, 25)}, late)},
		{"without a pause", steps([]step{request(pause, 200), answer(ms, 25)}, repeat(8, loop...), []step{nothing(time.Second)})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := []Class{last(Strict, tc.steps), last(Wide, tc.steps)}; got[0] == Between || got[1] == Between {
				t.Errorf("strict %s, wide %s while the client is asked for the rest of its request", got[0], got[1])
			}
		})
	}
}

// Nor where it, or the request that it is for, came in one look with the end of the
// answer before.
func TestInterimAnswersBehindAnAnswer(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		look []step
		then step
	}{
		{"all three, with nothing before", []step{answer(20*ms, 300), request(2*tick, 200), answer(2*tick, 25)}, nothing(0)},
		{"the request, after a rest", []step{answer(20*ms, 300), request(2*tick, 200)}, answer(40*ms, 25)},
	} {
		s := newSight(1)
		s.watch(0, repeat(25, request(pause, 200), answer(40*ms, 25), nothing(40*ms), request(pause, 1000), answer(10*ms, 300), nothing(40*ms))...)
		s.watch(0, request(pause, 200), answer(40*ms, 25), nothing(40*ms), request(pause, 1000), nothing(40*ms))
		if tc.then.after > 0 {
			s.watch(0, answer(ms, 500), nothing(pause)) // the first part of what has never paused
		}
		s.blink(0, ms, tc.look...)
		if v := s.watch(0, tc.then, nothing(2*time.Second)); v.Strict == Between || v.Wide == Between {
			t.Errorf("%s: strict %s, wide %s while the client is asked for the rest of its request", tc.name, v.Strict, v.Wide)
		}
	}
}

// Once an answer has paused, a port is not believed again for having answered many
// others without.
func TestAPortThatHasPausedIsRemembered(t *testing.T) {
	t.Parallel()
	stream := []step{request(pause, 77), answer(10*ms, 501), answer(time.Second, 502)}
	second := []step{request(pause, 78), answer(10*ms, 503), nothing(5 * time.Second)}
	if got := last(Wide, steps(everNew(30), stream, everNew(30), second)); got == Between {
		t.Errorf("%s in the pause of a port's second stream", got)
	}
	if got := last(Wide, steps(everNew(30), second)); got != Between {
		t.Errorf("%s on a port that has never paused, want between", got)
	}
}

// TLS's last words of the server come while it works on the first request: that is
// not a pause within an answer. If it happens again before the next request, it is.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	handshake := []step{request(0, 1500), answer(2*ms, 700), request(2*ms, 180), answer(2*ms, 500)}
	slow := []step{answer(300*ms, 400)}
	for _, tc := range []struct {
		name  string
		steps []step
		want  Class
	}{
		{"one work", steps(handshake, slow, everNew(30), []step{nothing(pause)}), Between},
		{"a stream", steps(handshake, slow, slow, everNew(30), []step{nothing(pause)}), Unknown},
	} {
		if got := last(Wide, tc.steps); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// Goodbye of TLS comes with a server's FIN, and says nothing about its answers.
func TestAGoodbyeIsNoPause(t *testing.T) {
	t.Parallel()
	c, other := New(), newLine(2)
	closing := []step{nothing(pause), {0, func(l *line, now time.Duration) {
		l.out(now, 24)
		l.Established = false
	}}}
	keepAlive := repeat(6, request(pause, 100), answer(10*ms, 300))
	classes(Strict, c, newLine(1), steps(keepAlive, closing))
	all := classes(Strict, c, other, steps(keepAlive, []step{nothing(pause)}))
	if got := all[len(all)-1]; got != Between {
		t.Errorf("%s after another connection was closed, want between", got)
	}
}

// What a port's connections have taught is believed of a new one from its first
// answer on; what was only seen without certainty is not.
func TestNewConnections(t *testing.T) {
	t.Parallel()
	c := New()
	classes(Strict, c, newLine(1), repeat(6, request(pause, 100), answer(10*ms, 300)))
	for _, tc := range []struct {
		name  string
		peer  uint16
		steps []step
		want  Class
	}{
		{"known", 2, []step{request(pause, 100), answer(10*ms, 300), nothing(pause)}, Between},
		{"at work", 3, []step{request(pause, 100), nothing(pause)}, Owes},
		{"other size", 4, []step{request(pause, 100), answer(10*ms, 301), nothing(pause)}, Unknown},
	} {
		all := classes(Strict, c, newLine(tc.peer), tc.steps)
		if got := all[len(all)-1]; got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// A rest begins when nothing has moved since the last look, and not only one look
// after the acknowledgement.
func TestAnAcknowledgementDoesNotMove(t *testing.T) {
	t.Parallel()
	taught := repeat(6, request(pause, 100), answer(10*ms, 300))
	slow := []step{request(pause, 100), unacknowledged(10*ms, 300), acknowledged(30 * ms), nothing(10 * ms)}
	got := classes(Strict, New(), newLine(1), steps(taught, slow))
	if diff := cmp.Diff([]Class{Sending, Between}, got[len(got)-2:]); diff != "" {
		t.Errorf("the last classes (-want +got):\n%s\nall: %v", diff, got)
	}
}

// A segment that comes twice brings nothing, and takes nothing back.
func TestADuplicateIsNoRequest(t *testing.T) {
	t.Parallel()
	taught := repeat(6, request(pause, 100), answer(10*ms, 300))
	again := []step{request(pause, 100), answer(10*ms, 300), duplicate(40 * ms), nothing(pause)}
	if got := last(Strict, steps(taught, again, repeat(3, request(pause, 100), answer(10*ms, 300)), []step{nothing(pause)})); got != Between {
		t.Errorf("%s, want between", got)
	}
	c := New()
	classes(Strict, c, newLine(1), steps(taught, again))
	if p := c.strict.ports[8080]; p.interim || p.paused {
		t.Errorf("a segment that came twice is taken for an answer: %+v", *p)
	}
}

// A client that asks again at once hides every complete answer from the looks: what
// they see at rest is always in the middle of one.
func TestPausesInALoop(t *testing.T) {
	t.Parallel()
	// No look falls between the three.
	loop := steps(
		[]step{request(205*ms, 100), answer(ms, 250)},
		repeat(60, answer(498*ms, 200), request(ms, 100), answer(ms, 250)), []step{nothing(400 * ms)})
	got := []Class{last(Strict, loop), last(Wide, loop)}
	if got[0] == Between || got[1] == Between {
		t.Errorf("strict %s, wide %s in the middle of an answer", got[0], got[1])
	}
}

// atOnce is what happens between two looks.
func atOnce(all ...step) step {
	return step{0, func(l *line, now time.Duration) {
		for _, s := range all {
			s.do(l, now)
		}
	}}
}

// An answer's end, the next request and its first part, all in one look that comes
// late: where the next answer begins is not known then.
func TestAnAnswersEndThatNobodySaw(t *testing.T) {
	t.Parallel()
	chunks := []step{
		request(pause, 100), acknowledgement(50 * ms), answer(10*ms, 200), answer(300*ms, 200), answer(300*ms, 200), answer(300*ms, 200),
	}
	taught := repeat(8, chunks...)
	begun := []step{request(pause, 100), acknowledgement(50 * ms), answer(10*ms, 200), answer(300*ms, 200), answer(300*ms, 200), nothing(100 * ms)}
	unseen := []step{atOnce(answer(0, 200), request(0, 100), answer(0, 200))}
	rest := []step{answer(300*ms, 200), answer(300*ms, 200), nothing(100 * ms)}
	if got := last(Strict, steps(taught, begun, unseen, rest)); got == Between {
		t.Errorf("%s before the last part of an answer", got)
	}
	if got := last(Strict, steps(taught, begun, unseen, rest, []step{answer(300*ms, 200)}, chunks, []step{nothing(pause)})); got != Between {
		t.Errorf("%s when the beginning is known again, want between", got)
	}
}

// Where a server once went on at a place at which answers had ended, that an answer
// ended at some place proves nothing there: so it is with several at a time.
func TestAPortThatRefutesItself(t *testing.T) {
	t.Parallel()
	short := repeat(6, request(pause, 100), answer(30*ms, 300))
	other := repeat(6, request(pause, 200), answer(30*ms, 400))
	if got := last(Strict, steps(other, short, []step{answer(pause, 70)}, other, []step{nothing(pause)})); got == Between {
		t.Errorf("%s, although an answer went on where it had seemed to end", got)
	}
}

// That is remembered, whatever else goes on elsewhere afterwards.
func TestARefutedPortStaysSo(t *testing.T) {
	t.Parallel()
	short := repeat(6, request(pause, 100), answer(30*ms, 300))
	other := repeat(6, request(pause, 200), answer(30*ms, 400))
	stream := []step{request(pause, 77), answer(30*ms, 501), answer(pause, 502)}
	if got := last(Strict, steps(other, short, []step{answer(pause, 70)}, stream, other, []step{nothing(pause)})); got == Between {
		t.Errorf("%s on a port that has refuted itself", got)
	}
}

// A request and its answer in one look and one tick teach as well, as soon as it is
// known that the answer came last.
func TestFastAnswersTeach(t *testing.T) {
	t.Parallel()
	stream := []step{request(pause, 70), answer(10*ms, 200), answer(300*ms, 200)}
	fast := repeat(8, request(205*ms, 100), answer(0, 300))
	if got := last(Strict, steps(stream, stream, fast, []step{nothing(pause)})); got != Between {
		t.Errorf("%s, want between", got)
	}
}

// Turns between which there were no looks do not show that a port never pauses.
func TestTurnsThatNobodyWatched(t *testing.T) {
	t.Parallel()
	c, l := New(), newLine(1)
	all := classes(Wide, c, l, everNew(4))
	start, now := time.Unix(2000, 0), 100*time.Second
	look := func() {
		now += 250 * ms
		all = append(all, c.Look(start.Add(now), []Figures{l.at(now)})[0].Wide)
	}
	look()
	for i := range uint64(40) {
		l.in(now+10*ms, 200+i)
		l.out(now+15*ms, 500+i)
		l.out(now+165*ms, 100)
		look()
		look()
	}
	if got := all[len(all)-1]; got == Between {
		t.Errorf("%s on a port that pauses where nobody looks", got)
	}
}

// Among very many sizes one that is the same is so by chance.
func TestSizesThatAreTheSameByChance(t *testing.T) {
	t.Parallel()
	taught := repeat(6, request(pause, 100), answer(30*ms, 300))
	var many []step
	for i := range uint64(200) {
		many = append(many, request(pause, 100), answer(30*ms, 1000+i), answer(300*ms, 2000))
	}
	again := []step{request(pause, 100), answer(30*ms, 300), nothing(pause)}
	if got := last(Strict, steps(taught, many[:15], again)); got != Between {
		t.Errorf("%s among few sizes, want between", got)
	}
	if got := last(Strict, steps(taught, many, again)); got == Between {
		t.Errorf("%s among very many sizes", got)
	}
}
