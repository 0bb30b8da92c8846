//go:build linux

package main

import (
	"fmt"
	"io"
	"time"
)

// goal is something that has to be reached.
type goal struct {
	What string `json:"what"`
	Is   string `json:"is"`
	Must string `json:"must"`
	Met  bool   `json:"met"`
}

const (
	// coldWithin is within which time a pause of short keep-alives has to be found.
	coldWithin = 2 * time.Second
	// lookWithin is how long a look at many sockets may take.
	lookWithin = 30 * time.Millisecond
)

// judgeGoals says what is reached of what has to be. Looks 0 asks for none.
func (r *report) judgeGoals(looks int) {
	open, _ := r.sum(func(c cell) bool { return !c.Opaque })
	if looks > 0 {
		r.goal("looks at a request in flight", fmt.Sprint(open.Flying), fmt.Sprintf("%d or more", looks), open.Flying >= looks)
	}
	r.goal("strict: of these judged between", fmt.Sprint(open.WrongStrict), "0", open.WrongStrict == 0)
	later := open.WrongWide - open.WrongFirst
	r.goal("wide: the same, but for the first stream of a port", fmt.Sprint(later), "0", later == 0)
	for _, k := range r.kinds {
		t, found := r.sum(func(c cell) bool { return c.Traffic == k.name })
		if !found || k.rival == nil {
			continue
		}
		is := percent(t.FoundWide, t.Pauses)
		r.goal("wide: pauses found, "+k.name, fmt.Sprintf("%d %%", is), fmt.Sprintf("%d %% or more", k.rival.wide), is >= k.rival.wide)
	}
	short := kinds[0].name
	if firsts, never := r.firsts(short, func(c cell) float64 { return c.FirstWide }); len(firsts)+never > 0 {
		met := never == 0 && firsts[len(firsts)-1] <= coldWithin.Seconds()
		r.goal("first pause found cold, "+short+", the worst", worst(firsts), coldWithin.String()+" or less", met)
	}
	for _, c := range r.Costs {
		if c.Sockets == manySockets {
			r.goal(fmt.Sprintf("a look at %d sockets, CPU", c.Sockets), fmt.Sprintf("%.1f ms", c.LookCPUMillis),
				lookWithin.String()+" or less", c.LookCPUMillis <= millis(lookWithin))
		}
	}
}

func (r *report) goal(what, is, must string, met bool) {
	r.Goals = append(r.Goals, goal{what, is, must, met})
}

func (r report) missed() bool {
	for _, g := range r.Goals {
		if !g.Met {
			return true
		}
	}
	return false
}

func (r report) writeGoals(w io.Writer) error {
	rows := [][]string{{"must be", "is", "must", "met"}}
	for _, g := range r.Goals {
		met := "yes"
		if !g.Met {
			met = "**no**"
		}
		rows = append(rows, []string{g.What, g.Is, g.Must, met})
	}
	return table(w, rows...)
}
