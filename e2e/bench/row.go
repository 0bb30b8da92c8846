package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// row is one line of the table.
type row struct {
	What     string `json:"what"`
	Must     string `json:"must,omitempty"` // empty where nothing is asked for
	Measured string `json:"measured"`
	Met      *bool  `json:"met,omitempty"` // nil where nothing is asked for
	By       string `json:"by,omitempty"`  // how much, in words
}

// atMost is a row whose figure has a limit.
func atMost[T int | int64 | float64 | time.Duration](what string, measured, limit T, show func(T) string) row {
	met := measured <= limit
	by := "reached exactly"
	switch share := float64(measured)/float64(limit) - 1; {
	case limit == 0 && !met:
		by = "over by " + show(measured)
	case limit == 0:
		by = ""
	case share < 0:
		by = fmt.Sprintf("%.0f %% below", -100*share)
	case share > 0:
		by = fmt.Sprintf("%.0f %% over", 100*share)
	}
	must := "<= " + show(limit)
	if limit == 0 {
		must = show(limit)
	}
	return row{What: what, Must: must, Measured: show(measured), Met: &met, By: by}
}

// holds is a row of something that is so or not.
func holds(what, must, measured string, met bool) row {
	return row{What: what, Must: must, Measured: measured, Met: &met}
}

// with adds words to what was measured.
func (r row) with(format string, args ...any) row {
	r.Measured += fmt.Sprintf(format, args...)
	return r
}

// verdict is the last column.
func (r row) verdict() string {
	if r.Met == nil {
		return ""
	}
	text := "met"
	if !*r.Met {
		text = "**not met**"
	}
	if r.By != "" {
		text += ", " + r.By
	}
	return text
}

func count(n int) string { return fmt.Sprint(n) }

// table is a part of the report below the rows.
type table struct {
	Title  string     `json:"title"`
	Header []string   `json:"header"`
	Lines  [][]string `json:"lines"`
}

func writeRows(w io.Writer, rows []row) {
	t := table{Header: []string{"what", "must", "measured", "verdict"}}
	for _, r := range rows {
		t.Lines = append(t.Lines, []string{r.What, r.Must, r.Measured, r.verdict()})
	}
	t.write(w)
}

// write prints markdown.
func (t table) write(w io.Writer) {
	if len(t.Lines) == 0 {
		return
	}
	if t.Title != "" {
		fmt.Fprintf(w, "\n%s\n", t.Title)
	}
	fmt.Fprintf(w, "\n| %s |\n|%s\n", strings.Join(t.Header, " | "), strings.Repeat("---|", len(t.Header)))
	for _, line := range t.Lines {
		fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
	}
}
