package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"

	"github.com/conndrain/conndrain/conntrack"
)

// The words for what happened to a session between two looks.
const (
	changePresent = "present" // it was there at the first look
	changeOpened  = "opened"
	changeChanged = "changed"
	changeEnded   = "ended"
	changeKnown   = "known"   // the sessions are known, from now on or again
	changeUnknown = "unknown" // what is shown may be out of date
)

// change is one thing that happened. Session is nil where it is about all.
type change struct {
	What    string             `json:"-"`
	Session *conntrack.Session `json:"-"`
	// Request is what the session is doing, if that is known.
	Request string `json:"-"`
	// Fault is why the sessions are unknown, if the kernel could not be asked.
	Fault string `json:"error,omitempty"`
	countsJSON
}

// flowKey identifies a session among those of one watch.
type flowKey struct {
	protocol       conntrack.Protocol
	client, server netip.AddrPort
}

// changeView writes each change once.
type changeView struct {
	w     io.Writer
	doing func() doing
	write func(*bufio.Writer, change) error

	before map[flowKey]conntrack.Session
	order  []flowKey
	known  bool
}

func (v *changeView) show(sessions []conntrack.Session, counts conntrack.Counts, fault error) error {
	b := bufio.NewWriterSize(v.w, 64<<10)
	d := v.doing()
	for _, c := range v.changes(sessions, counts) {
		c.countsJSON = countsOf(counts)
		if c.Session != nil {
			c.Request = d.of(c.Session)
		}
		if c.What == changeUnknown && fault != nil {
			c.Fault = fault.Error()
		}
		if err := v.write(b, c); err != nil {
			return err
		}
	}
	return b.Flush()
}

// changes compares with the look before and remembers this one. While the
// sessions are unknown nothing is compared: what is missing may still live.
func (v *changeView) changes(sessions []conntrack.Session, counts conntrack.Counts) []change {
	var changes []change
	if counts.Known != v.known {
		v.known = counts.Known
		what := changeUnknown
		if counts.Known {
			what = changeKnown
		}
		changes = append(changes, change{What: what})
	}
	if !counts.Known {
		return changes
	}
	first := v.before == nil
	now := make(map[flowKey]conntrack.Session, len(sessions))
	order := make([]flowKey, len(sessions))
	for i, s := range sessions {
		key := flowKey{s.Protocol, s.Client, s.Server}
		order[i] = key
		now[key] = s
		was, there := v.before[key]
		switch {
		case first:
			changes = append(changes, change{What: changePresent, Session: &sessions[i]})
		case !there:
			changes = append(changes, change{What: changeOpened, Session: &sessions[i]})
		case was.State != s.State || was.Kernel != s.Kernel || was.ClosedFirst != s.ClosedFirst:
			changes = append(changes, change{What: changeChanged, Session: &sessions[i]})
		}
	}
	for _, key := range v.order {
		if _, there := now[key]; !there {
			s := v.before[key]
			s.State = conntrack.Over
			changes = append(changes, change{What: changeEnded, Session: &s})
		}
	}
	v.before, v.order = now, order
	return changes
}

func writeChangeJSON(b *bufio.Writer, c change) error {
	o := struct {
		What    string            `json:"change"`
		Session *describedSession `json:"session,omitempty"`
		change
	}{What: c.What, change: c}
	if c.Session != nil {
		o.Session = &describedSession{c.Session, c.Request}
	}
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = b.Write(append(line, '\n'))
	return err
}

// signs begin the lines of a text.
var signs = map[string]string{
	changePresent: "=", changeOpened: "+", changeChanged: "~", changeEnded: "-",
	changeKnown: "*", changeUnknown: "?",
}

func writeChangeText(b *bufio.Writer, c change) error {
	var err error
	switch s := c.Session; {
	case s != nil:
		_, err = fmt.Fprintf(b, "%s %s %s to %s at %s, %s\n",
			signs[c.What], s.Protocol, s.Origin, s.Destination, s.Server, stateWords(*s))
	case c.What == changeKnown:
		_, err = fmt.Fprintf(b, "%s %d open, %d idle, %d lost\n", signs[c.What], *c.Open, *c.Idle, *c.Lost)
	case c.Fault != "":
		_, err = fmt.Fprintf(b, "%s unknown: %s\n", signs[c.What], c.Fault)
	default:
		_, err = fmt.Fprintf(b, "%s unknown: the kernel's table is read again\n", signs[c.What])
	}
	return err
}
