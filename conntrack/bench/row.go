//go:build linux

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// verdict of a row.
type verdict string

const (
	ok     verdict = "ok"
	missed verdict = "MISSED"
)

func judge(good bool) verdict {
	if good {
		return ok
	}
	return missed
}

// row is one line of the printed table.
type row struct {
	what, ours, against, theirs, required, reached string
	verdict                                        verdict
}

// ratio is a row that compares two samples of times. It is reached by the best
// of each and by the medians, or not at all.
func ratio(what string, ours sample, against string, theirs sample, required float64) row {
	best := float64(theirs.best()) / float64(ours.best())
	median := float64(theirs.median()) / float64(ours.median())
	return row{
		what: what, ours: ours.String(), against: against, theirs: theirs.String(),
		required: fmt.Sprintf(">= %gx", required),
		reached:  fmt.Sprintf("%.1fx / %.1fx", best, median),
		verdict:  judge(min(best, median) >= required),
	}
}

func printRows(w io.Writer, rows []row) {
	if len(rows) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tCONNDRAIN\tAGAINST\tTHAT\tREQUIRED\tREACHED\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.what, r.ours, r.against, r.theirs, r.required, r.reached, r.verdict)
	}
	_ = t.Flush()
	fmt.Fprintln(w, "Times are best / median; so are ratios: best by best, median by median, and both have to reach what is required.")
}

// sample is what one thing took, several times.
type sample []time.Duration

func (s sample) best() time.Duration   { return s.percentile(0) }
func (s sample) median() time.Duration { return s.percentile(50) }
func (s sample) worst() time.Duration  { return s.percentile(100) }

// percentile by the nearest rank, which is a value that was seen.
func (s sample) percentile(p int) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := (p*len(sorted) + 99) / 100
	return sorted[max(rank, 1)-1]
}

func (s sample) String() string { return span(s.best()) + " / " + span(s.median()) }

// span prints a time with three digits.
func span(d time.Duration) string {
	switch {
	case d.Abs() >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d.Abs() >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
}
