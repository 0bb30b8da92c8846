package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests"
)

// How often progress is shown at most and, on a terminal's absence, at least.
const (
	redrawEvery = 100 * time.Millisecond
	lineAtMost  = time.Second
	lineAtLeast = 10 * time.Second
)

// progress shows a person where a wait stands: one line that renews on a
// terminal, lines at changes elsewhere. It is for one goroutine.
type progress struct {
	w io.Writer
	// screen is nil where w leads to no terminal.
	screen  *terminal
	command string
	subject string

	began, shown time.Time
	last         string
	noted        map[string]bool
	// requests says that requests are waited for.
	requests bool
}

// note says something once, however often it is called with it.
func (p *progress) note(text string) {
	if p.noted[text] {
		return
	}
	if p.noted == nil {
		p.noted = make(map[string]bool)
	}
	p.noted[text] = true
	p.clear()
	fmt.Fprintf(p.w, "%s: %s\n", p.command, text)
}

// blindNote is what a person should know of a machine whose table is not whole.
const (
	blindNote         = blindNoteRequests + " (they tell of TCP alone; UDP is not seen, and --idle-after does not apply to them)"
	blindNoteRequests = "connections bypass connection tracking here: this machine's sockets decide"
)

// show shows where the wait stands, or leaves it if it was shown only just now.
func (p *progress) show(s status) {
	if s.counts.Source == conntrack.FromSockets && s.doing == nil {
		if p.requests {
			p.note(blindNoteRequests)
		} else {
			p.note(blindNote)
		}
	}
	if s.blind != "" {
		p.note("waiting for the end of all sessions, because nobody can tell whether requests are in flight: " + s.blind)
	}
	if s.fault != nil {
		p.note(fmt.Sprintf("the sessions are unknown for now, trying again: %v", s.fault))
	}
	now := time.Now()
	if p.began.IsZero() {
		p.began = now
	}
	if p.screen != nil {
		p.redraw(s, now)
		return
	}
	since := now.Sub(p.shown)
	if p.shown.IsZero() {
		since = lineAtLeast
		if !s.certain() {
			// The first moments of every wait are unknown and not worth a line.
			since = now.Sub(p.began)
		}
	}
	state := plainState(s)
	if since < lineAtMost || state == p.last && since < lineAtLeast {
		return
	}
	p.last, p.shown = state, now
	fmt.Fprintf(p.w, "%s left=%s\n", state, left(s.left))
}

func (p *progress) redraw(s status, now time.Time) {
	// What a narrow terminal cuts off is what its reader knows.
	line := left(s.left) + " left: " + spoken(s) + " at " + p.subject
	// The last column stays free: a terminal may wrap when it is written to.
	if width, _ := p.screen.size(); len(line) >= width {
		line = line[:width-1]
	}
	if line == p.last || now.Sub(p.shown) < redrawEvery {
		return
	}
	p.last, p.shown = line, now
	fmt.Fprint(p.w, eraseLine+line)
}

// clear takes the renewing line away, so that something else can be written.
func (p *progress) clear() {
	if p.screen != nil && p.last != "" {
		fmt.Fprint(p.w, eraseLine)
		p.last, p.shown = "", time.Time{}
	}
}

// certain says whether the counts can be shown.
func (s status) certain() bool { return certain(s.counts, s.socketsPending) }

// plainState is a status in keys, for logs.
func plainState(s status) string {
	if !s.certain() {
		return "phase=" + s.phase.String() + " sessions=unknown"
	}
	c := s.counts
	var line strings.Builder
	fmt.Fprintf(&line, "phase=%s open=%d idle=%d lost=%d new=%d", s.phase, c.Open, c.Idle, c.Lost, c.New)
	if s.doing != nil {
		for _, class := range classes {
			fmt.Fprintf(&line, " %s=%d", class, s.doing[class])
		}
	}
	if c.Opening > 0 {
		fmt.Fprintf(&line, " opening=%d", c.Opening)
	}
	return line.String()
}

// spoken is a status in words.
func spoken(s status) string {
	if !s.certain() {
		return "sessions unknown"
	}
	c := s.counts
	parts := []string{
		fmt.Sprintf("%d open", c.Open), fmt.Sprintf("%d idle", c.Idle),
		fmt.Sprintf("%d lost", c.Lost), fmt.Sprintf("%d new", c.New),
	}
	for _, class := range classes {
		if n := s.doing[class]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, classWords[class]))
		}
	}
	if c.Opening > 0 {
		parts = append(parts, fmt.Sprintf("%d opening", c.Opening))
	}
	if s.phase == lifecycle.Settling {
		parts = append(parts, "settling")
	}
	return strings.Join(parts, ", ")
}

// classes are what a connection may be doing, in the order in which they are shown.
var classes = []requests.Class{requests.Between, requests.Owes, requests.Sending, requests.Streaming, requests.Unknown}

// classWords say it to a person.
var classWords = map[requests.Class]string{
	requests.Between: "between two requests", requests.Owes: "to be answered", requests.Sending: "being sent an answer",
	requests.Streaming: "in the middle of an answer", requests.Unknown: "of which nobody can tell",
}

// left is how long there is in whole seconds, in tenths where that is not one. It
// says 0s only when it is over.
func left(d time.Duration) string {
	const tenth = time.Second / 10
	if d > 0 && d <= 9*tenth {
		return fmt.Sprintf("%.1fs", (d + tenth - 1).Truncate(tenth).Seconds())
	}
	return plain((d + time.Second - 1).Truncate(time.Second))
}
