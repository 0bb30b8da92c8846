//go:build linux

package main

import (
	"slices"
	"time"
)

// leastPause is the shortest pause that should be found.
const leastPause = 200 * time.Millisecond

// tally counts looks.
type tally struct {
	// Flying are looks at a request in flight; the wrong ones of them are those judged
	// between, by rule. WrongFirst are those of WrongWide in the first answer of its
	// port that came with a pause.
	Flying      int `json:"flying"`
	WrongNaive  int `json:"wrongNaive"`
	WrongStrict int `json:"wrongStrict"`
	WrongWide   int `json:"wrongWide"`
	WrongFirst  int `json:"wrongFirst"`
	// Pauses are looks at a pause of at least leastPause; the found ones of them are
	// those judged between, by rule.
	Pauses      int `json:"pauses"`
	FoundStrict int `json:"foundStrict"`
	FoundWide   int `json:"foundWide"`
	// Unclear were left out.
	Unclear int `json:"unclear"`
	// Requests are all, Failed those without an answer, Untold those of which the
	// server did not tell.
	Requests int `json:"requests"`
	Failed   int `json:"failed"`
	Untold   int `json:"untold"`
	// Rounds are looks at all connections, Late those of them that came later after
	// the one before than it takes to see every pause.
	Rounds int `json:"rounds"`
	Late   int `json:"late"`
}

// lateAfter is what the classifier takes for too long between two looks.
const lateAfter = 100 * time.Millisecond

func (t *tally) add(o tally) {
	for _, f := range []struct {
		to   *int
		more int
	}{
		{&t.Flying, o.Flying}, {&t.WrongNaive, o.WrongNaive}, {&t.WrongStrict, o.WrongStrict}, {&t.WrongWide, o.WrongWide},
		{&t.WrongFirst, o.WrongFirst}, {&t.Pauses, o.Pauses}, {&t.FoundStrict, o.FoundStrict}, {&t.FoundWide, o.FoundWide},
		{&t.Unclear, o.Unclear}, {&t.Requests, o.Requests}, {&t.Failed, o.Failed}, {&t.Untold, o.Untold},
		{&t.Rounds, o.Rounds}, {&t.Late, o.Late},
	} {
		*f.to += f.more
	}
}

// cell is what came of one trial.
type cell struct {
	Traffic string `json:"traffic"`
	Server  string `json:"server"`
	Link    string `json:"link"`
	// Opaque kinds of traffic cannot be seen into.
	Opaque bool   `json:"opaque"`
	Seed   uint64 `json:"seed"`
	tally
	// FirstStrict and FirstWide are the seconds from the first look that had a
	// connection to the first that found a pause; negative if none did.
	FirstStrict float64 `json:"firstStrict"`
	FirstWide   float64 `json:"firstWide"`
}

// tabulate holds what was said against what is known.
func (r *running) tabulate() cell {
	c := cell{
		Traffic: r.kind.name, Server: r.server, Link: r.link, Opaque: r.kind.opaque, Seed: r.seed,
		FirstStrict: -1, FirstWide: -1,
	}
	c.Requests, c.Failed, c.Untold = r.truth.counts()
	c.Rounds = len(r.looks)
	for i := range r.looks[min(1, len(r.looks)):] {
		c.Late += one(r.looks[i+1].from.Sub(r.looks[i].from) > lateAfter)
	}
	lives, learned := r.truth.lives(), r.learned()
	for _, m := range r.marks {
		at := r.looks[m.look]
		l := lives[r.clients[m.client]]
		if l == nil {
			c.Unclear++ // it never had a request
			continue
		}
		s, pause := l.at(at.from, at.to)
		since := at.from.Sub(r.looks[r.marks[0].look].from).Seconds()
		switch {
		case s == unclear:
			c.Unclear++
		case s == inFlight:
			c.Flying++
			c.WrongNaive += one(m.naive)
			c.WrongStrict += one(m.strict)
			c.WrongWide += one(m.wide)
			c.WrongFirst += one(m.wide && r.kind.parts && int(m.look) <= learned)
		case pause >= leastPause:
			c.Pauses++
			c.FoundStrict += one(m.strict)
			c.FoundWide += one(m.wide)
			if m.strict && c.FirstStrict < 0 {
				c.FirstStrict = since
			}
			if m.wide && c.FirstWide < 0 {
				c.FirstWide = since
			}
		}
	}
	return c
}

// learned is the first look that has seen an answer go on after a pause, or a number
// that no look has.
func (r *running) learned() int {
	first := r.truth.firstMore()
	i := slices.IndexFunc(r.looks, func(l looked) bool { return !first.IsZero() && l.from.Sub(first) >= margin })
	if i < 0 {
		return len(r.looks)
	}
	return i
}
