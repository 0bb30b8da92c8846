package requests

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tick is how fine the figures' times are, lookEvery how often a test looks.
const (
	tick      = 4 * time.Millisecond
	lookEvery = 20 * time.Millisecond
)

// line is a connection as a kernel would count it.
type line struct {
	Figures
	sent, received time.Duration // since the start
}

func newLine(peer uint16) *line {
	return &line{Figures: Figures{
		Local:       netip.MustParseAddrPort("10.244.1.7:8080"),
		Peer:        netip.AddrPortFrom(netip.MustParseAddr("192.168.10.20"), peer),
		Established: true, Known: true,
	}}
}

// in is a request or a part of one, out an answer or a part of one that arrives.
func (l *line) in(now time.Duration, size uint64) {
	l.Received += size
	l.DataReceived++
	l.received = now
}

func (l *line) out(now time.Duration, size uint64) {
	l.Written += size
	l.Acknowledged += size
	l.DataSent++
	l.sent = now
}

// acknowledge is a segment without data, as a request gets that nothing answers.
func (l *line) acknowledge() { l.Pure++ }

func (l *line) at(now time.Duration) Figures {
	f := l.Figures
	round := func(d time.Duration) time.Duration { return d.Truncate(tick) }
	f.SinceSent, f.SinceReceived = round(now)-round(l.sent), round(now)-round(l.received)
	return f
}

// step is what happens to a line at some moment.
type step struct {
	after time.Duration
	do    func(l *line, now time.Duration)
}

func request(after time.Duration, size uint64) step {
	return step{after, func(l *line, now time.Duration) { l.in(now, size) }}
}

func answer(after time.Duration, size uint64) step {
	return step{after, func(l *line, now time.Duration) { l.out(now, size) }}
}

func acknowledgement(after time.Duration) step {
	return step{after, func(l *line, _ time.Duration) { l.acknowledge() }}
}

func nothing(after time.Duration) step { return step{after, func(*line, time.Duration) {}} }

func repeat(n int, steps ...step) []step {
	var all []step
	for range n {
		all = append(all, steps...)
	}
	return all
}

// classes runs the steps and returns the classes in their order, those that
// follow each other only once.
func classes(rule Rule, c *Classifier, l *line, steps []step) []Class {
	start := time.Unix(1000, 0)
	var all []Class
	var now, next time.Duration
	look := func() {
		class := c.Look(start.Add(next), []Figures{l.at(next)})[0].By(rule)
		if n := len(all); n == 0 || all[n-1] != class {
			all = append(all, class)
		}
		next += lookEvery
	}
	for _, s := range steps {
		now += s.after
		for next <= now {
			look()
		}
		s.do(l, now)
	}
	look()
	return all
}

// last is the class at the end of the steps.
func last(rule Rule, steps []step) Class {
	all := classes(rule, New(), newLine(1), steps)
	return all[len(all)-1]
}

const (
	ms    = time.Millisecond
	pause = 200 * ms
)

// What each kind of traffic is at its end, after answers of the same kind before.
func TestClasses(t *testing.T) {
	t.Parallel()
	keepAlive := repeat(6, request(pause, 100), answer(10*ms, 300))
	slow := repeat(6, request(pause, 100), acknowledgement(40*ms), answer(1500*ms, 300))
	chunks := repeat(6, request(pause, 100), answer(10*ms, 200), answer(300*ms, 200), answer(300*ms, 200))
	early := repeat(6, request(pause, 100), answer(10*ms, 120), answer(time.Second, 5000))
	continued := repeat(6, request(pause, 200), answer(10*ms, 25), request(500*ms, 1000), answer(10*ms, 300))
	var sizes []step
	for i := range uint64(30) {
		sizes = append(sizes, request(pause, 100+i), answer(10*ms, 300+7*i))
	}
	with := func(steps []step, more ...step) []step { return append(append([]step{}, steps...), more...) }
	for _, tc := range []struct {
		name         string
		steps        []step
		strict, wide Class
	}{
		{"a keep-alive that pauses", with(keepAlive, nothing(pause)), Between, Between},
		{"a keep-alive's next request", with(keepAlive, request(pause, 100), nothing(40*ms)), Owes, Owes},
		{"an answer of another size", with(keepAlive, request(pause, 100), answer(10*ms, 900), nothing(pause)), Unknown, Unknown},
		{"only two turns", with(keepAlive[:4], nothing(pause)), Unknown, Unknown},
		{"slow answers, at work", with(slow, request(pause, 100), nothing(time.Second)), Owes, Owes},
		{"slow answers, between", with(slow, nothing(pause)), Between, Between},
		{"chunks, before the second", with(chunks, request(pause, 100), answer(10*ms, 200), nothing(pause)), Streaming, Streaming},
		{"chunks, after the last", with(chunks, nothing(pause)), Between, Between},
		{"headers early, before the body", with(early, request(pause, 100), answer(10*ms, 120), nothing(500*ms)), Streaming, Streaming},
		{"headers early, after the body", with(early, nothing(pause)), Between, Between},
		{"100 Continue, before the body", with(continued, request(pause, 200), answer(10*ms, 25), nothing(400*ms)), Unknown, Unknown},
		{"ever-new sizes", with(sizes, nothing(pause)), Unknown, Between},
		{"ever-new sizes at work", with(sizes, request(pause, 999), nothing(40*ms)), Owes, Owes},
		{"has not spoken", []step{nothing(time.Second)}, Unknown, Unknown},
		{"first request, no answer yet", []step{request(pause, 100), nothing(time.Minute)}, Owes, Owes},
		{"the server speaks first", []step{answer(pause, 100), nothing(time.Minute)}, Unknown, Unknown},
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

// A request and the end of the answer before it, or a request and its answer, may
// both have come since the last look: the order is then told by what follows.
func TestBothMovedBetweenTwoLooks(t *testing.T) {
	t.Parallel()
	first := []step{request(pause, 100), acknowledgement(40 * ms), answer(500*ms, 300)}
	steps := append(first, request(6*ms, 100), nothing(200*ms))
	// in the same tick as the answer that came before
	steps[3].after = 0
	if got := last(Strict, append(steps, acknowledgement(0), nothing(pause))); got == Between {
		t.Errorf("%s while a request is in flight", got)
	}
}

func TestWhatTheQueuesSayHolds(t *testing.T) {
	t.Parallel()
	l, c := newLine(1), New()
	classes(Strict, c, l, append(repeat(6, request(pause, 100), answer(10*ms, 300)), nothing(pause)))
	start, now := time.Unix(1000, 0), 10*time.Second
	for _, tc := range []struct {
		name   string
		change func(*Figures)
		want   Class
	}{
		{"unread", func(f *Figures) { f.ReceiveQueue = 1 }, Owes},
		{"not acknowledged", func(f *Figures) { f.Unacknowledged = 1 }, Sending},
		{"not sent", func(f *Figures) { f.Unsent = 1 }, Sending},
		{"in the send queue", func(f *Figures) { f.SendQueue = 1 }, Sending},
		{"closed by a side", func(f *Figures) { f.Established = false }, Unknown},
		{"not told", func(f *Figures) { f.Known = false }, Unknown},
	} {
		f := l.at(now)
		tc.change(&f)
		if got := c.Look(start.Add(now), []Figures{f})[0].Wide; got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		now += lookEvery
	}
}

// A connection that takes over the addresses of another inherits none of its turns;
// its port has learned, and a connection that is gone is forgotten.
func TestConnectionsComeAndGo(t *testing.T) {
	t.Parallel()
	c := New()
	keepAlive := append(repeat(6, request(pause, 100), answer(10*ms, 300)), nothing(pause))
	classes(Strict, c, newLine(1), keepAlive)
	v := c.Look(time.Unix(2000, 0), []Figures{newLine(1).at(0)})
	if v[0].Strict != Unknown || v[0].Turns != 0 {
		t.Errorf("%+v of a new connection with an old one's addresses", v[0])
	}
	c.Look(time.Unix(2001, 0), nil)
	c.Look(time.Unix(2002, 0), nil)
	for _, h := range []history{c.strict, c.wide} {
		if len(h.connections) != 0 || len(h.ports) != 1 {
			t.Errorf("%d connections and %d ports are kept, want none and one", len(h.connections), len(h.ports))
		}
	}
}

// A port whose places are all worth keeping is not gone through for each new one.
func TestForgettingIsBounded(t *testing.T) {
	t.Parallel()
	p := newPort(Wide)
	for i := range uint64(maxPairs) {
		p.of(pair{i, i, 1}).complete = 2
	}
	forgot := 0
	for i := range uint64(10 * maxPairs) {
		before := p.full
		if p.of(pair{i, i + 1, 1}) != nil {
			t.Fatal("there is room, though nothing was forgotten")
		}
		if p.full > before {
			forgot++
		}
	}
	if forgot == 0 || forgot > 10 {
		t.Errorf("gone through %d times for %d new pairs", forgot, 10*maxPairs)
	}
	// What has no place is not learned of.
	at := turn{segments: 1}
	at.received, at.written = 8, 9
	p.ended(at, basis{true, true}, 0)
	p.surely(at, basis{true, true})
	p.wentOn(at.pair, true, true)
	if len(p.pairs) > maxPairs || p.turns[at] != 0 || !p.paused {
		t.Errorf("%d places, %d turns, paused %t", len(p.pairs), p.turns[at], p.paused)
	}
}

// A new connection may have moved more of everything but one thing by the first look
// at it: no count of a connection ever shrinks.
func TestNoCountShrinks(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		less func(*Figures)
	}{
		{"received", func(f *Figures) { f.Received -= 1001 }},
		{"written", func(f *Figures) { f.Written -= 1001 }},
		{"segments received", func(f *Figures) { f.DataReceived -= 11 }},
		{"segments sent", func(f *Figures) { f.DataSent -= 11 }},
	} {
		c, l := New(), newLine(1)
		classes(Wide, c, l, append(repeat(6, request(pause, 100), answer(10*ms, 300)), nothing(pause)))
		l.Received, l.Written, l.Acknowledged = l.Received+1000, l.Written+1000, l.Acknowledged+1000
		l.DataReceived, l.DataSent = l.DataReceived+10, l.DataSent+10
		f := l.at(10 * time.Second)
		tc.less(&f)
		if v := c.Look(time.Unix(1010, 0), []Figures{f})[0]; v.Turns != 0 || v.Request != Endless {
			t.Errorf("less %s: taken for the same connection: %+v", tc.name, v)
		}
	}
}

// What is kept of a port is bounded, and never what would make it believe more.
func TestLearningIsBounded(t *testing.T) {
	t.Parallel()
	p := newPort(Wide)
	for i := range uint64(3 * maxPairs) {
		p.ended(turn{pair{i, i, 1}, 1}, basis{true, true}, 0)
	}
	p.wentOn(pair{7, 7, 1}, true, true)
	for i := range uint64(3 * maxPairs) {
		p.surely(turn{pair{i, i + 1, 1}, 1}, basis{true, true})
	}
	if len(p.pairs) > maxPairs || len(p.turns) > maxPairs {
		t.Errorf("%d pairs and %d turns are kept, want %d at the most", len(p.pairs), len(p.turns), maxPairs)
	}
	if s := p.pairs[pair{7, 7, 1}]; s == nil || s.prefix != 1 {
		t.Error("a place where an answer went on was forgotten")
	}
}
