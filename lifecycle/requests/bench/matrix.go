//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/conndrain/conndrain/lifecycle/requests"
)

// leastPause is the shortest pause that should be found.
const leastPause = 200 * time.Millisecond

// errWrong is a request in flight that was taken for a pause.
var errWrong = errors.New("a request in flight was judged between")

// row is what came of one trial.
type row struct {
	trial
	// flying are looks at a request in flight, wrong those of them that were judged
	// between, by rule.
	flying, wrongStrict, wrongWide int
	// pauses are looks at a pause of at least leastPause, found those of them judged
	// between, by rule. unclear were left out.
	pauses, foundStrict, foundWide, unclear int
	// firstBetween is how long after the start the first one was found by Strict.
	firstBetween time.Duration
	looks        int
	perLook      time.Duration
}

func tabulate(t trial, known *truth, all []judged, looks int, cost time.Duration) row {
	r := row{trial: t, looks: looks, perLook: cost / time.Duration(max(looks, 1)), firstBetween: -1}
	for _, j := range all {
		s, pause := known.at(j.client, j.from, j.to, margin)
		switch {
		case s == unclear:
			r.unclear++
		case s == inFlight:
			r.flying++
			r.wrongStrict += is(j.strict)
			r.wrongWide += is(j.wide)
		case pause >= leastPause:
			r.pauses++
			r.foundStrict += is(j.strict)
			r.foundWide += is(j.wide)
			if r.firstBetween < 0 && j.strict == requests.Between {
				r.firstBetween = j.from.Sub(all[0].from)
			}
		}
	}
	return r
}

func is(c requests.Class) int {
	if c == requests.Between {
		return 1
	}
	return 0
}

// printMatrix prints a row for each trial and what they come to, and is errWrong if
// a kind of traffic was judged wrong that is said never to be.
func printMatrix(w io.Writer, rows []row) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "server\ttraffic\tin flight\twrong strict\twrong wide\tpauses\tstrict\twide\tfirst\tleft out\tper look")
	var sum row
	var err error
	for _, r := range rows {
		first := "-"
		if r.firstBetween >= 0 {
			first = fmt.Sprintf("%.1f s", r.firstBetween.Seconds())
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%s\n", r.server, r.kind.name, r.flying, r.wrongStrict, r.wrongWide,
			r.pauses, share(r.foundStrict, r.pauses), share(r.foundWide, r.pauses), first, r.unclear, r.perLook.Round(10*time.Microsecond))
		sum.flying += r.flying
		sum.wrongStrict += r.wrongStrict
		sum.wrongWide += r.wrongWide
		sum.pauses += r.pauses
		sum.foundStrict += r.foundStrict
		sum.foundWide += r.foundWide
		sum.unclear += r.unclear
		if r.wrongStrict > 0 && !r.kind.opaque {
			err = fmt.Errorf("%s, %s: %w, %d times", r.server, r.kind.name, errWrong, r.wrongStrict)
		}
	}
	fmt.Fprintf(out, "all\t\t%d\t%d\t%d\t%d\t%s\t%s\t\t%d\t\n", sum.flying, sum.wrongStrict, sum.wrongWide,
		sum.pauses, share(sum.foundStrict, sum.pauses), share(sum.foundWide, sum.pauses), sum.unclear)
	return errors.Join(out.Flush(), err)
}

func share(part, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(of))
}
