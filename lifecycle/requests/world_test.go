package requests

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"time"
)

// event is something that happens in a world.
type event struct {
	at    time.Duration
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(v any)   { *e = append(*e, v.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// traffic is what the clients and the server of one port do. The likelihoods are
// those of one request.
type traffic struct {
	sizes, answers []uint64
	// chunked requests of one size get parts parts of another, a pause apart.
	chunked       float64
	streams, part uint64
	parts         int
	pause         time.Duration
	// continued are those that wait for a "100 Continue", slow those that the server
	// works on for long, and lost those whose answer is sent again.
	continued, slow, lost float64
	// probed get a keep-alive probe, and torn come without their beginning first.
	probed, torn float64
	think        []time.Duration
	roundTrip    time.Duration
	// tls has a handshake before all requests, and each connection is closed after so many
	// requests; 0 is never.
	tls  bool
	life int
	// late is how likely a look comes late, and every how far the others are apart.
	late  float64
	every time.Duration
}

// world is some connections of one port, as a kernel would count them.
type world struct {
	*rand.Rand
	traffic
	now    time.Duration
	events events
	order  int
	lines  []*truth
	peers  uint16
	// segment is how many bytes a server's segment has at the most.
	segment uint32
}

// truth is a connection of which it is known whether a request is in flight.
type truth struct {
	*line
	flight bool
	heard  int // what came in so far
	owed   bool
	asked  int
}

// newWorld makes up a world. No turn has the sizes of a part of another answer, though
// several may; and only clients that pause wait for a "100 Continue".
func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 0)), segment: 9000}
	if seed%2 == 0 {
		w.segment = 1448
	}
	perhaps := func(likely float64) float64 {
		if w.Float64() < 0.3 {
			return likely * w.Float64()
		}
		return 0
	}
	for range 1 + w.IntN(3) {
		w.sizes = append(w.sizes, pick(w, 100, 100, 200, uint64(300)))
		w.answers = append(w.answers, pick(w, 100, 200, 300, 300, 600, uint64(20_000)))
	}
	w.chunked, w.streams, w.part = perhaps(1), pick(w, 50, uint64(150)), pick(w, 100, 300, uint64(450))
	w.parts, w.pause = 2+w.IntN(3), pick(w, 100*ms, 300*ms, 500*ms)
	w.continued, w.slow, w.lost, w.probed, w.torn = perhaps(1), perhaps(1), perhaps(0.4), perhaps(0.4), perhaps(0.3)
	w.think = pick(w, []time.Duration{0}, []time.Duration{0, ms}, []time.Duration{pause},
		[]time.Duration{0, ms, 10 * ms, 100 * ms, 300 * ms, 1500 * ms})
	if len(w.think) != 1 || w.think[0] != pause {
		w.continued = 0
	}
	w.roundTrip, w.every = pick(w, 0, 0, ms, 20*ms), pick(w, 20*ms, 25*ms, 50*ms)
	if w.chunked == 0 {
		w.late = perhaps(0.5)
	}
	w.tls, w.life = w.likely(0.25), pick(w, 0, 0, 2, 4, 10)
	for range 1 + w.IntN(3) {
		w.connect()
	}
	return w
}

// connect is a new connection and all that follows from it.
func (w *world) connect() {
	w.peers++
	l := &truth{line: newLine(w.peers)}
	l.Pure, l.RoundTrip, l.SegmentSize = 1, w.roundTrip, w.segment // the handshake's
	w.lines = append(w.lines, l)
	if !w.tls {
		w.ask(l)
		return
	}
	const hello, certificate, finished, tickets = 517, 1500, 80, 250
	w.receive(l, hello)
	w.after(pick(w, 0, ms, 3*ms), func() {
		w.send(l, certificate)
		w.after(w.roundTrip+pick(w, 0, ms, 5*ms), func() {
			if w.likely(0.3) {
				w.request(l, finished) // with the first request
			} else {
				w.receive(l, finished)
				w.ask(l)
			}
			w.after(0, func() { w.send(l, tickets) })
		})
	})
}

func (w *world) disconnect(l *truth) {
	w.lines = slices.DeleteFunc(w.lines, func(other *truth) bool { return other == l })
}

func pick[T any](w *world, all ...T) T { return all[w.IntN(len(all))] }

func (w *world) likely(p float64) bool { return p > 0 && w.Float64() < p }

func (w *world) after(d time.Duration, do func()) {
	w.order++
	heap.Push(&w.events, event{w.now + d, w.order, do})
}

// run lets time pass and looks at all connections.
func (w *world) run(limit time.Duration, look func(at time.Duration, all []Figures)) {
	var next func()
	next = func() {
		var all []Figures
		for _, l := range w.lines {
			all = append(all, l.at(w.now))
		}
		look(w.now, all)
		d := w.every
		if w.likely(w.late) {
			d += time.Duration(w.IntN(400)) * ms
		}
		w.after(d, next)
	}
	w.after(0, next)
	for w.now < limit {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
}

// ask is a client's next request, and all that follows from it.
func (w *world) ask(l *truth) {
	w.after(pick(w, w.think...)+time.Duration(w.IntN(4000))*time.Microsecond, func() { w.request(l, 0) })
	if w.likely(w.probed) {
		w.after(pick(w, ms, 50*ms), func() { probe(0).do(l.line, w.now) })
	}
}

// request comes with so many bytes before it in its first segment.
func (w *world) request(l *truth, before uint64) {
	l.flight = true
	size, respond := pick(w, w.sizes...), func() { w.respond(l) }
	if w.likely(w.chunked) {
		size, respond = w.streams, func() { w.stream(l, w.parts) }
	}
	if !w.likely(w.continued) {
		w.body(l, before, size, respond)
		return
	}
	w.receive(l, before+200)
	w.after(pick(w, 0, ms), func() {
		w.send(l, 25)
		w.after(w.roundTrip+pick(w, ms, 300*ms), func() { w.body(l, 0, size, respond) })
	})
}

// body is a request that comes, in one or two segments.
func (w *world) body(l *truth, before, size uint64, then func()) {
	whole := func() { w.receive(l, before+size); then() }
	switch {
	case before == 0 && w.likely(w.torn):
		tooEarly(0).do(l.line, w.now)
		w.after(pick(w, ms, 30*ms, pause), whole)
	case w.likely(0.15):
		w.receive(l, before+size/2)
		w.after(pick(w, 0, ms, 30*ms, 300*ms), func() { w.receive(l, size-size/2); then() })
	default:
		whole()
	}
}

// receive is a segment with data. It acknowledges all output before it, and is
// acknowledged soon where no answer does so.
func (w *world) receive(l *truth, size uint64) {
	l.in(w.now, size)
	l.Acknowledged, l.Unacknowledged = l.Written, 0
	l.owed = true
	l.heard++
	heard := l.heard
	w.after(pick(w, 0, 40*ms, 40*ms, 40*ms, 40*ms), func() {
		if l.owed && heard == l.heard {
			l.owed = false
			l.acknowledge()
		}
	})
}

func (w *world) respond(l *truth) {
	work := pick(w, 0, 0, ms, 3*ms, 10*ms, 30*ms)
	if w.likely(w.slow) {
		work = pick(w, 150*ms, 600*ms)
	}
	w.after(work, func() { w.send(l, pick(w, w.answers...)); w.over(l) })
}

func (w *world) stream(l *truth, parts int) {
	w.after(pick(w, 0, 10*ms, w.pause), func() {
		w.send(l, w.part)
		if parts--; parts == 0 {
			w.over(l)
			return
		}
		w.after(w.pause, func() { w.stream(l, parts) })
	})
}

func (w *world) over(l *truth) {
	l.flight = false
	l.asked++
	w.after(w.roundTrip, func() {
		if w.life == 0 || l.asked < w.life {
			w.ask(l)
			return
		}
		w.after(pick(w, 0, 100*ms), func() { w.disconnect(l); w.connect() })
	})
}

// send is what the server says, which the client acknowledges a round trip later.
func (w *world) send(l *truth, size uint64) {
	segment := uint64(w.segment)
	l.Written += size
	l.DataSent += uint32((size + segment - 1) / segment)
	l.Unacknowledged++
	l.sent, l.owed = w.now, false
	end := l.Written
	acknowledged := func() {
		l.Acknowledged = max(l.Acknowledged, end)
		if l.Acknowledged == l.Written {
			l.Unacknowledged = 0
		}
	}
	if !w.likely(w.lost) {
		w.after(w.roundTrip, acknowledged)
		return
	}
	w.after(pick(w, ms, 3*ms, 10*ms, pause), func() {
		if l.Acknowledged >= end {
			return
		}
		l.DataSent++
		l.Retransmits++
		l.sent = w.now
		w.after(w.roundTrip, acknowledged)
	})
}
