package requests

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// probe is a keep-alive probe with an octet: it is counted as a segment with data and
// acknowledged at once.
func probe(after time.Duration) step {
	return step{after, func(l *line, _ time.Duration) { l.DataReceived++; l.Pure++ }}
}

// tooEarly is a part of a request while the one before it is missing.
func tooEarly(after time.Duration) step {
	return step{after, func(l *line, _ time.Duration) {
		l.DataReceived++
		l.OutOfOrder++
		l.Pure++
	}}
}

// A probe of the client's kernel is no request: it neither teaches, nor makes a
// connection owe an answer, nor unsettles one that is between.
func TestProbesAreNoRequests(t *testing.T) {
	t.Parallel()
	keepAlive := repeat(6, request(pause, 100), answer(10*ms, 300))
	fast := repeat(6, request(205*ms, 100), answer(0, 300))
	paused := []step{request(pause, 100), answer(10*ms, 500)}
	probes := append(repeat(8, probe(pause)), nothing(pause))
	for _, tc := range []struct {
		name         string
		steps        []step
		strict, wide Class
	}{
		{"a first answer that pauses", steps(paused, probes), Unknown, Unknown},
		{"an answer of a taught port that pauses", steps(keepAlive, paused, probes), Unknown, Between}, // after a second of silence
		{"between", steps(keepAlive, probes), Between, Between},
		{"between, of answers as fast as the clock", steps(fast, probes), Between, Between},
		{"at work", steps(keepAlive, []step{request(pause, 100)}, probes), Owes, Owes},
		{"has not spoken", probes, Unknown, Unknown},
		{"the server speaks first", steps([]step{answer(pause, 100)}, probes), Unknown, Unknown},
		{"goes on after them", steps(keepAlive, probes, keepAlive[:2], []step{nothing(pause)}), Between, Between},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := []Class{last(Strict, tc.steps), last(Wide, tc.steps)}
			if diff := cmp.Diff([]Class{tc.strict, tc.wide}, got); diff != "" {
				t.Errorf("strict and wide (-want +got):\n%s", diff)
			}
		})
	}
	all := classes(Strict, New(), newLine(1), steps(keepAlive, probes))
	if diff := cmp.Diff(classes(Strict, New(), newLine(1), append(keepAlive, nothing(pause))), all); diff != "" {
		t.Errorf("with probes at the end (-want +got):\n%s", diff)
	}
}

// They teach a port nothing, neither that an answer ended nor that none ever pauses.
func TestProbesTeachNothing(t *testing.T) {
	t.Parallel()
	c := New()
	classes(Wide, c, newLine(1), steps([]step{request(pause, 100), answer(10*ms, 500)}, repeat(30, probe(pause)), []step{nothing(pause)}))
	for _, h := range []history{c.strict, c.wide} {
		if p := h.ports[8080]; len(p.pairs) != 0 || p.certain != 0 || p.unpaused != [len(watched)]int{} {
			t.Errorf("%+v", *p)
		}
	}
}

// Nor do they hide how long nothing was said.
func TestProbesDoNotBreakASilence(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		first []step
	}{
		{"never spoke", nil},
		{"paused within its first answer", []step{request(0, 100), answer(0, 500)}},
	} {
		v := verdict(steps(tc.first, repeat(20, probe(time.Second))))
		if v.Wide != Unknown || v.Silent < 20*time.Second {
			t.Errorf("%s: %s, silent for %s", tc.name, v.Wide, v.Silent)
		}
	}
}

// While the beginning of a request is lost and the rest of it has come, the client is
// owed an answer, however long that takes.
func TestALostBeginning(t *testing.T) {
	t.Parallel()
	keepAlive := repeat(25, request(pause, 100), answer(10*ms, 300))
	for _, tc := range []struct {
		name         string
		steps        []step
		strict, wide Class
	}{
		{"lost", steps(keepAlive, []step{tooEarly(pause), nothing(pause)}), Owes, Owes},
		{"lost for long", steps(keepAlive, []step{tooEarly(pause), nothing(time.Minute)}), Owes, Owes},
		{"lost, and the server says something", steps(keepAlive, []step{tooEarly(pause), answer(pause, 100), nothing(pause)}), Owes, Owes},
		{"of the first request", []step{nothing(pause), tooEarly(pause), nothing(time.Minute)}, Owes, Owes},
		{"come again", steps(keepAlive, []step{tooEarly(pause), request(pause, 200), nothing(pause)}), Owes, Owes},
		{"answered", steps(keepAlive, []step{tooEarly(pause), request(pause, 200), answer(10*ms, 300), nothing(pause)}), Unknown, Between},
		{"the next one answered", steps(keepAlive, []step{tooEarly(pause), request(pause, 200), answer(10*ms, 300)}, keepAlive[:4], []step{nothing(pause)}), Between, Between},
		{"within an upload", steps(keepAlive, []step{request(pause, 50), tooEarly(20 * ms), request(pause, 50), answer(10*ms, 300), nothing(pause)}), Between, Between},
		{"perhaps, behind an answer in one look", steps(keepAlive, []step{request(pause, 100), nothing(40 * ms),
			atOnce(request(0, 50), answer(0, 300), tooEarly(0)), nothing(time.Minute)}), Unknown, Unknown},
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

// It can come behind an answer in one look, which ended as any other would: that the
// next request has begun is only seen by the segment that came too early.
func TestALostBeginningBehindAnAnswer(t *testing.T) {
	t.Parallel()
	s := newSight(1)
	s.watch(0, turns(6, 100, 300)...)
	s.watch(0, request(pause, 50))
	s.blink(0, ms, request(lookEvery, 50), answer(2*tick, 300), tooEarly(tick))
	for range 60 {
		if v := s.look(lookEvery)[0]; v.Strict == Between || v.Wide == Between {
			t.Fatalf("strict %s, wide %s while a request is in flight", v.Strict, v.Wide)
		}
	}
}

// Nor does it ever teach that an answer ended where it came.
func TestALostBeginningTeachesNothing(t *testing.T) {
	t.Parallel()
	c := New()
	turn := []step{tooEarly(pause), request(pause, 100), answer(10*ms, 300)}
	classes(Strict, c, newLine(1), steps([]step{request(pause, 100), answer(10*ms, 300)}, repeat(20, turn...), []step{nothing(pause)}))
	if p := c.strict.ports[8080]; len(p.pairs) != 0 || len(p.turns) != 0 || p.certain != 0 || p.unpaused != [len(watched)]int{} {
		t.Errorf("%+v", *p)
	}
}

// A request is no younger for a beginning that was lost.
func TestPaceOfALostBeginning(t *testing.T) {
	t.Parallel()
	keepAlive := repeat(6, request(pause, 100), answer(10*ms, 300))
	for _, tc := range []struct {
		name  string
		steps []step
		age   time.Duration
	}{
		{"after others", steps(keepAlive, []step{tooEarly(pause), nothing(400 * ms), request(0, 200), nothing(100 * ms)}), 500 * ms},
		{"the first", []step{nothing(pause), tooEarly(pause), nothing(400 * ms), request(0, 200), nothing(100 * ms)}, 500 * ms},
	} {
		got := verdict(tc.steps).Request
		if got < tc.age || got > tc.age+3*lookEvery {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.age)
		}
	}
}

// Whoever comes when it is lost already sees that, but not since when.
func TestALostBeginningThatNobodySawCome(t *testing.T) {
	t.Parallel()
	l, c := newLine(1), New()
	tooEarly(0).do(l, 0)
	for at := time.Duration(0); at < time.Second; at += lookEvery {
		if at == 500*ms {
			l.in(at, 200)
		}
		v := c.Look(time.Unix(1000, 0).Add(at), []Figures{l.at(at)})[0]
		if v.Strict != Owes || v.Wide != Owes || v.Request != Endless {
			t.Fatalf("after %s: %+v", at, v)
		}
	}
}

// An upload some of whose segments overtake others teaches as any other does.
func TestSegmentsThatOvertakeOthers(t *testing.T) {
	t.Parallel()
	upload := []step{request(pause, 1000), {0, tooEarly(0).do}, request(40*ms, 9000), answer(10*ms, 300)}
	if got := last(Strict, steps(repeat(6, upload...), []step{nothing(pause)})); got != Between {
		t.Errorf("%s, want between", got)
	}
}
