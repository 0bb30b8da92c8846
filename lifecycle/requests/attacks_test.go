package requests

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A client that gives up while an answer pauses ends no answer: its FIN is no request,
// and what the server writes later nobody sees.
func TestClientsThatGiveUp(t *testing.T) {
	t.Parallel()
	for _, goodbye := range []uint64{0, 24} { // TLS says one before the FIN
		s := newSight(0)
		for n := range 8 {
			i := s.connect()
			v := s.watch(i, request(20*ms, 180), answer(10*ms, 160), nothing(600*ms)) // the headers
			if v.Strict == Between {
				t.Fatalf("%s: stream %d waits for its first event", v.Strict, n+1)
			}
			s.watch(i, step{pause, func(l *line, now time.Duration) {
				if goodbye > 0 {
					l.in(now, goodbye)
				}
				l.Received++
				l.Established = false
				l.Pure++
			}}, nothing(300*ms))
			s.lines[i] = newLine(uint16(1000 + n))
			s.look(lookEvery)
		}
	}
}

// The whole handshake of a near client, up to the head of its upload and the tickets, comes
// without a rest; known turns later on the connection do not make that one.
func TestTicketsWithoutARest(t *testing.T) {
	t.Parallel()
	s := newSight(0)
	for n := range 30 {
		i := s.connect()
		s.blink(i, ms, request(0, 517), answer(ms, 1500))
		if v := s.watch(i, request(ms, 280), answer(0, 500), nothing(pause)); v.Strict == Between || v.Wide == Between {
			t.Fatalf("strict %s, wide %s before the body of upload %d", v.Strict, v.Wide, n+1)
		}
		s.watch(i, request(ms, 500), acknowledgement(0), answer(50*ms, 205), nothing(40*ms))
		s.watch(i, turns(3, 60, 205)...)
	}
}

// alone is a world of one connection, which does what ask says.
func alone(seed uint64, every time.Duration, begin func(w *world, l *truth)) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 3)), traffic: traffic{every: every}, segment: 1448}
	l := &truth{line: newLine(1)}
	w.lines = append(w.lines, l)
	begin(w, l)
	return w
}

// A sidecar that learns looks more seldom than when its pod drains: what it has not seen
// to pause by then may do so for as long as its looks were apart.
func TestLearnedBySeldomLooks(t *testing.T) {
	t.Parallel()
	for _, gap := range []time.Duration{30 * ms, 45 * ms} {
		for seed := range uint64(10) {
			w := alone(seed, 50*ms, func(w *world, l *truth) {
				var ask func()
				ask = func() {
					w.after(time.Duration(200+w.IntN(200))*ms, func() {
						l.flight = true
						w.receive(l, 100+uint64(w.IntN(30)))
						w.after(time.Duration(1000+w.IntN(20000))*time.Microsecond, func() {
							w.send(l, 180) // the head of a page
							w.after(gap, func() { w.send(l, 300+uint64(w.IntN(100_000))); l.flight = false; ask() })
						})
					})
				}
				ask()
			})
			c := New()
			w.run(66*time.Second, func(at time.Duration, all []Figures) {
				v := c.Look(time.Unix(1000, 0).Add(at), all)[0]
				if at > 60*time.Second {
					w.every = 22 * ms // the pod drains
				}
				if w.lines[0].flight && (v.Wide == Between || v.Strict == Between) {
					t.Fatalf("strict %s, wide %s after a head, %s before the rest", v.Strict, v.Wide, gap)
				}
			})
		}
	}
}

// upload asks whether it may, has its body ready a while after it is told so, and is over
// when it is answered.
func (w *world) upload(l *truth, asked, work time.Duration, then func()) {
	w.receive(l, 210)
	w.after(asked, func() {
		w.send(l, 25)
		w.after(600*ms, func() {
			w.receive(l, 4001)
			w.after(work, func() { w.send(l, 305); l.flight = false; then() })
		})
	})
}

// Uploads that follow each other at once, each of which asks whether it may: the end of an
// answer, the next head and its "100 Continue" always come in one look, so that no such
// answer is ever seen by itself. The strict rule is not taken in.
func TestContinueWithoutPauses(t *testing.T) {
	t.Parallel()
	for _, think := range []time.Duration{0, ms} {
		for seed := range uint64(20) {
			w := alone(seed, 22*ms, func(w *world, l *truth) {
				l.Received, l.Written, l.Acknowledged, l.DataReceived, l.DataSent, l.Pure = 50_000, 20_000, 20_000, 70, 60, 9 // before
				var ask func()
				ask = func() {
					w.after(think, func() {
						l.flight = true
						w.upload(l, ms, time.Duration(20+w.IntN(20))*ms, ask)
					})
				}
				w.after(time.Duration(w.IntN(22))*ms, ask)
			})
			c := New()
			w.run(20*time.Second, func(at time.Duration, all []Figures) {
				if v := c.Look(time.Unix(1000, 0).Add(at), all)[0]; w.lines[0].flight && v.Strict == Between {
					t.Fatalf("%s after %s, while a body is waited for", v.Strict, at)
				}
			})
		}
	}
}

// A quick request and the head of an upload come in one look, with the answer to the one
// and the "100 Continue" to the other.
func TestLookupThenContinue(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		w := alone(seed, 22*ms, func(w *world, l *truth) {
			var ask func()
			ask = func() {
				w.after(time.Duration(60+w.IntN(300))*ms, func() {
					l.flight = true
					w.receive(l, 150)
					w.after(ms, func() {
						w.send(l, 240)
						w.after(0, func() { w.upload(l, 0, 20*ms, ask) })
					})
				})
			}
			ask()
		})
		c := New()
		w.run(30*time.Second, func(at time.Duration, all []Figures) {
			if v := c.Look(time.Unix(1000, 0).Add(at), all)[0]; w.lines[0].flight && v.Strict == Between {
				t.Fatalf("%s after %s, while a body is waited for", v.Strict, at)
			}
		})
	}
}

// A client's certificates make a handshake long.
func TestTicketsAfterManyCertificates(t *testing.T) {
	t.Parallel()
	s := newSight(0)
	for n := range 12 {
		i := s.connect()
		s.watch(i, request(ms, 1400), request(0, 400), answer(ms, 1500), nothing(40*ms))
		s.watch(i, repeat(9, request(0, 1400))...)
		if v := s.watch(i, request(0, 280), answer(0, 500), nothing(pause)); v.Strict == Between || v.Wide == Between {
			t.Fatalf("strict %s, wide %s before the body of upload %d", v.Strict, v.Wide, n+1)
		}
		s.watch(i, request(ms, 500), acknowledgement(0), answer(50*ms, 205), nothing(40*ms))
		s.watch(i, turns(3, 60, 205)...)
	}
}

// A request that does not wait for the rest of an answer is no end of it: with that rest, the
// first part of the next answer is as long as a whole one.
func TestARequestInTheMiddleOfAnAnswer(t *testing.T) {
	t.Parallel()
	for name, early := range map[string][]step{
		"seen by itself":                      {request(150*ms, 100), answer(100*ms, 300)},
		"beside the rest":                     {nothing(150 * ms), atOnce(request(0, 100), answer(0, 300))},
		"beside it, and long before the next": {nothing(150 * ms), atOnce(request(0, 100), answer(0, 300)), nothing(150 * ms)},
	} {
		s := newSight(1)
		s.watch(0, repeat(8, request(pause, 100), answer(10*ms, 180), answer(pause, 300), nothing(pause))...)
		s.watch(0, request(pause, 100), answer(10*ms, 180))
		s.watch(0, early...)
		v := s.watch(0, answer(10*ms, 180), nothing(100*ms))
		if v.Strict == Between || v.Wide == Between {
			t.Errorf("%s: strict %s, wide %s in the middle of an answer", name, v.Strict, v.Wide)
		}
	}
}
