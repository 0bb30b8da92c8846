package main

import (
	"bytes"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/conndrain/conndrain/conntrack"
)

// columns are the table's heads.
var columns = [...]string{"PROTO", "CLIENT", "SERVER", "ASKED FOR", "STATE", "KERNEL", "QUIET", "CLOSED FIRST", "REQUEST"}

// requestColumn is there only where it is known what connections are doing.
const requestColumn = len(columns) - 1

// spare are the columns that a narrow terminal can do without, in the order in
// which they go: ASKED FOR, PROTO and KERNEL.
var spare = [...]int{3, 0, 5}

// table lays out sessions in columns. All cells live in one buffer, because a
// table may have thousands of rows and is often read by a program.
type table struct {
	cells []byte
	ends  []int
	width [len(columns)]int
	// hidden columns are left out, and gap is the space between the others.
	hidden [len(columns)]bool
	gap    int
}

func newTable(sessions []conntrack.Session, d doing) *table {
	rows := len(sessions) + 1
	t := &table{
		cells: make([]byte, 0, rows*96),
		ends:  make([]int, 0, rows*len(columns)),
		gap:   wideGap,
	}
	for _, head := range columns {
		t.cells = append(t.cells, head...)
		t.end()
	}
	t.hidden[requestColumn] = d == nil
	for i := range sessions {
		t.add(&sessions[i], d)
	}
	return t
}

// end closes the cell that was appended last.
func (t *table) end() {
	start := 0
	if len(t.ends) > 0 {
		start = t.ends[len(t.ends)-1]
	}
	w := &t.width[len(t.ends)%len(columns)]
	*w = max(*w, utf8.RuneCount(t.cells[start:]))
	t.ends = append(t.ends, len(t.cells))
}

func (t *table) add(s *conntrack.Session, d doing) {
	t.cells = append(t.cells, s.Protocol.String()...)
	t.end()
	t.cells = s.Origin.AppendTo(t.cells)
	if s.Client != s.Origin {
		// Masqueraded: the server sees somebody else.
		t.cells = append(t.cells, " as "...)
		t.cells = s.Client.AppendTo(t.cells)
	}
	t.end()
	t.cells = s.Server.AppendTo(t.cells)
	t.end()
	t.cells = s.Destination.AppendTo(t.cells)
	t.end()
	t.cells = append(t.cells, s.State.String()...)
	t.end()
	switch {
	case s.Kernel != "":
		t.cells = append(t.cells, s.Kernel...)
	case s.Offloaded:
		t.cells = append(t.cells, "offloaded"...)
	default:
		t.cells = append(t.cells, '-')
	}
	t.end()
	t.cells = appendQuiet(t.cells, s.Quiet)
	t.end()
	for _, word := range []string{s.ClosedFirst.String(), d.of(s)} {
		if word == "" {
			word = "-"
		}
		t.cells = append(t.cells, word...)
		t.end()
	}
}

// appendQuiet appends whole seconds below two minutes, whole minutes and hours
// after that.
func appendQuiet(b []byte, d time.Duration) []byte {
	switch {
	case d < 0:
		return append(b, "unknown"...)
	case d < 2*time.Minute:
		return append(strconv.AppendInt(b, int64(d/time.Second), 10), 's')
	case d < 2*time.Hour:
		return append(strconv.AppendInt(b, int64(d/time.Minute), 10), 'm')
	}
	return append(strconv.AppendInt(b, int64(d/time.Hour), 10), 'h')
}

// fit makes the table at most so wide, as far as it can: by columns that stand
// closer, then without the spare ones, last without any space to waste.
func (t *table) fit(width int) {
	if t.full() > width {
		t.gap = wideGap - 1
	}
	for _, column := range spare {
		if t.full() > width {
			t.hidden[column] = true
		}
	}
	if t.full() > width {
		t.gap = 1
	}
}

// full is how wide a line is.
func (t *table) full() int {
	full := -t.gap
	for i, w := range t.width {
		if !t.hidden[i] {
			full += w + t.gap
		}
	}
	return full
}

// lastColumn is the one that a line ends with.
func (t *table) lastColumn() int {
	if t.hidden[requestColumn] {
		return requestColumn - 1
	}
	return requestColumn
}

// WriteTo writes the whole table at once.
func (t *table) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(t.bytes())
	return int64(n), err
}

func (t *table) bytes() []byte {
	rows := len(t.ends) / len(columns)
	out := make([]byte, 0, rows*(t.full()+1))
	start := 0
	for i, end := range t.ends {
		cell := t.cells[start:end]
		start = end
		column := i % len(columns)
		if t.hidden[column] {
			continue
		}
		out = append(out, cell...)
		if column == t.lastColumn() {
			out = append(out, '\n')
			continue
		}
		out = append(out, bytes.Repeat(space, t.width[column]-utf8.RuneCount(cell)+t.gap)...)
	}
	return out
}

// wideGap is the space between columns where there is room for it.
const wideGap = 3

var space = []byte{' '}
