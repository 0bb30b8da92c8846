//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// report is all that was measured.
type report struct {
	Machine string  `json:"machine"`
	Seed    uint64  `json:"seed"`
	Seconds float64 `json:"seconds"`
	// Looks are those at a request in flight that can be seen into.
	Looks int    `json:"looks"`
	Cells []cell `json:"cells"`
	Costs []cost `json:"costs"`
	Goals []goal `json:"goals"`
	kinds []kind
}

// write prints the report, for people or for programs.
func (r report) write(w io.Writer, output string) error {
	if output == "json" {
		return json.NewEncoder(w).Encode(r)
	}
	all, _ := r.sum(func(cell) bool { return true })
	fmt.Fprintf(w, "%s\nseed %d, %.0f s, %d looks at a request in flight that can be seen into\n", r.Machine, r.Seed, r.Seconds, r.Looks)
	fmt.Fprintf(w, "%s of the looks came later than %s after the one before\n\n", share(all.Late, all.Rounds), lateAfter)
	return errors.Join(r.writeKinds(w), r.writeBy(w, "server", func(c cell) string { return c.Server }),
		r.writeBy(w, "link", func(c cell) string { return c.Link }), r.writeFirst(w), r.writeCosts(w), r.writeWrong(w), r.writeGoals(w))
}

// table prints rows in columns, as markdown.
func table(w io.Writer, rows ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', tabwriter.TabIndent)
	for i, row := range rows {
		for _, word := range row {
			fmt.Fprintf(t, "| %s\t", word)
		}
		fmt.Fprintln(t, "|")
		if i == 0 {
			for range row {
				fmt.Fprint(t, "|---\t")
			}
			fmt.Fprintln(t, "|")
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w)
	return err
}

var tallyHead = []string{"in flight", "naive wrong", "strict wrong", "wide wrong", "pauses", "strict", "wide"}

func (t tally) words() []string {
	wide := fmt.Sprint(t.WrongWide)
	if t.WrongFirst > 0 {
		wide += fmt.Sprintf(" (%d first)", t.WrongFirst)
	}
	return []string{
		fmt.Sprint(t.Flying), fmt.Sprint(t.WrongNaive), fmt.Sprint(t.WrongStrict), wide,
		fmt.Sprint(t.Pauses), share(t.FoundStrict, t.Pauses), share(t.FoundWide, t.Pauses),
	}
}

// writeKinds prints the matrix: what can be seen into with its sum, then the rest.
func (r report) writeKinds(w io.Writer) error {
	head := slices.Concat([]string{"traffic"}, tallyHead, []string{"to match", "left out"})
	var rows, opaque [][]string
	var sum tally
	for _, k := range r.kinds {
		t, found := r.sum(func(c cell) bool { return c.Traffic == k.name })
		if !found {
			continue
		}
		match := "-"
		if k.rival != nil {
			match = fmt.Sprintf("%d / %d %%", k.rival.strict, k.rival.wide)
		}
		row := slices.Concat([]string{k.name}, t.words(), []string{match, fmt.Sprint(t.Unclear)})
		if k.opaque {
			opaque = append(opaque, row)
			continue
		}
		rows = append(rows, row)
		sum.add(t)
	}
	rows = append(rows, slices.Concat([]string{"all that can be seen into"}, sum.words(), []string{"", fmt.Sprint(sum.Unclear)}))
	err := table(w, append([][]string{head}, rows...)...)
	if len(opaque) == 0 {
		return err
	}
	head[0] = "cannot be seen into"
	return errors.Join(err, table(w, append([][]string{head}, opaque...)...))
}

// sum adds up the cells that are chosen.
func (r report) sum(chosen func(cell) bool) (t tally, found bool) {
	for _, c := range r.Cells {
		if chosen(c) {
			t.add(c.tally)
			found = true
		}
	}
	return t, found
}

// writeBy prints the sums of what can be seen into, by something.
func (r report) writeBy(w io.Writer, name string, of func(cell) string) error {
	rows := [][]string{slices.Concat([]string{name}, tallyHead, []string{"left out", "requests", "failed", "untold"})}
	var names []string
	for _, c := range r.Cells {
		if !slices.Contains(names, of(c)) {
			names = append(names, of(c))
		}
	}
	slices.Sort(names)
	for _, n := range names {
		t, found := r.sum(func(c cell) bool { return !c.Opaque && of(c) == n })
		if found {
			rows = append(rows, slices.Concat([]string{n}, t.words(), []string{
				fmt.Sprint(t.Unclear), fmt.Sprint(t.Requests), fmt.Sprint(t.Failed), fmt.Sprint(t.Untold),
			}))
		}
	}
	return table(w, rows...)
}

// writeFirst prints how long it takes to find the first pause, cold.
func (r report) writeFirst(w io.Writer) error {
	rows := [][]string{{"first pause found, cold", "strict median", "worst", "wide median", "worst", "never"}}
	for _, k := range r.kinds {
		strict, never := r.firsts(k.name, func(c cell) float64 { return c.FirstStrict })
		wide, _ := r.firsts(k.name, func(c cell) float64 { return c.FirstWide })
		if len(wide) == 0 || k.opaque {
			continue
		}
		rows = append(rows, []string{k.name, middle(strict), worst(strict), middle(wide), worst(wide), fmt.Sprintf("%d of %d", never, never+len(strict))})
	}
	return table(w, rows...)
}

// firsts are the times, sorted, to the first pause found in each of the trials of a
// kind that had pauses, and how many found none.
func (r report) firsts(kind string, of func(cell) float64) (all []float64, never int) {
	for _, c := range r.Cells {
		switch {
		case c.Traffic != kind || c.Pauses == 0:
		case of(c) < 0:
			never++
		default:
			all = append(all, of(c))
		}
	}
	slices.Sort(all)
	return all, never
}

func middle(sorted []float64) string {
	if len(sorted) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f s", sorted[len(sorted)/2])
}

func worst(sorted []float64) string {
	if len(sorted) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f s", sorted[len(sorted)-1])
}

// writeWrong names each trial in which a rule was wrong.
func (r report) writeWrong(w io.Writer) error {
	rows := [][]string{{"judged wrong in", "server", "link", "seed", "in flight", "strict", "wide"}}
	for _, c := range r.Cells {
		if c.WrongStrict+c.WrongWide > 0 {
			rows = append(rows, []string{c.Traffic, c.Server, c.Link, fmt.Sprint(c.Seed), fmt.Sprint(c.Flying), fmt.Sprint(c.WrongStrict), c.words()[3]})
		}
	}
	if len(rows) == 1 {
		return nil
	}
	return table(w, rows...)
}

func share(part, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%d %%", percent(part, of))
}

// percent is a share in whole percent, the nearest.
func percent(part, of int) int { return (200*part + of) / (2 * max(of, 1)) }
