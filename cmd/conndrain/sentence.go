package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// leftAtMost bounds the list of sessions that were still there.
const leftAtMost = 10

// writeText writes the result for a person; the last line is a sentence.
func (r result) writeText(w io.Writer, subject string) error {
	var b strings.Builder
	for i, s := range r.left {
		if i == leftAtMost {
			fmt.Fprintf(&b, "  and %d more\n", len(r.left)-leftAtMost)
			break
		}
		fmt.Fprintf(&b, "  %s %s from %s to %s, %s\n", s.Protocol, stateWords(s), s.Origin, s.Destination, quietWords(s.Quiet))
	}
	b.WriteString(r.sentence(subject))
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// sentence says in one sentence how the wait ended.
func (r result) sentence(subject string) string {
	waited := short(r.waited)
	switch r.reason {
	case lifecycle.Drained:
		return r.drained(subject, waited)
	case lifecycle.Expired:
		return fmt.Sprintf("Expired: after %s %s.", waited, r.whatHeld(subject))
	case lifecycle.Cancelled:
		return fmt.Sprintf("Cancelled after %s: %s.", waited, r.whatHeld(subject))
	default:
		return fmt.Sprintf("%s after %s.", r.reason, waited)
	}
}

func (r result) drained(subject, waited string) string {
	var extra string
	if r.counts.New > 0 {
		extra += fmt.Sprintf("; %d began meanwhile", r.counts.New)
	}
	if r.counts.Idle > 0 {
		extra += fmt.Sprintf("; %s did not block", plural(r.counts.Idle, "idle session"))
	}
	if r.counts.Source == conntrack.FromSockets {
		extra += "; decided by the sockets of this machine"
	}
	if r.requests && r.counts.Blocking() > 0 {
		return r.betweenRequests(subject, waited) + extra + "."
	}
	if r.counts.Peak == 0 {
		return fmt.Sprintf("Drained: %s had no open session (looked for %s%s).", subject, waited, extra)
	}
	return fmt.Sprintf("Drained: the last session of %s ended, after %s; at most %d at a time%s.",
		subject, waited, r.counts.Peak, extra)
}

// betweenRequests says why sessions that live on did not hold.
func (r result) betweenRequests(subject, waited string) string {
	left := plural(r.counts.Blocking(), "session")
	if r.inFlight == 0 {
		return fmt.Sprintf("Drained: after %s no request is in flight on the %s of %s", waited, left, subject)
	}
	var how string
	switch surely := r.inFlight - r.untold; surely {
	case 0:
		how = "no request is known to be in flight"
	case 1:
		how = "one request is in flight"
	default:
		how = fmt.Sprintf("%d requests are in flight", surely)
	}
	text := fmt.Sprintf("Drained: after %s %s on the %s of %s", waited, how, left, subject)
	if r.untold > 0 {
		text += fmt.Sprintf(", of %d of which nobody can tell", r.untold)
	}
	return text + ": there was no moment without one (--busy-after)"
}

// whatHeld says what a release did not wait for.
func (r result) whatHeld(subject string) string {
	switch c := r.counts; {
	case r.requests && r.blind != "":
		return fmt.Sprintf("nobody can tell whether requests of %s are in flight: %s", subject, r.blind)
	case r.requests && c.Known && r.doing != nil && c.Blocking() > 0:
		var parts []string
		for _, class := range classes {
			if n := r.doing[class]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, classWords[class]))
			}
		}
		return fmt.Sprintf("%s of %s left: %s", plural(c.Blocking(), "session"), subject, strings.Join(parts, ", "))
	case r.fault != nil:
		return fmt.Sprintf("it is unknown which sessions of %s still live: %v", subject, r.fault)
	case !r.everKnown && c.ReportsPending:
		return fmt.Sprintf("it is unknown which sessions of %s live: to tell takes two looks at the sockets of this machine, a second apart", subject)
	case !r.everKnown && !c.Known:
		return fmt.Sprintf("it is unknown which sessions of %s live: there was no whole look at the kernel's table", subject)
	case !c.Known || c.ReportsPending:
		return fmt.Sprintf("it is unknown which sessions of %s still live (last known: %d)", subject, r.lastKnown.Blocking())
	case c.Blocking() > 0:
		verb := "are"
		if c.Blocking() == 1 {
			verb = "is"
		}
		return fmt.Sprintf("%s of %s %s left (%d open, %d lost, %d idle beside them), %d with a packet in the last 5 s or an unknown time ago",
			plural(c.Blocking(), "session"), subject, verb, c.Open, c.Lost, c.Idle, c.Active)
	case c.Opening > 0:
		return fmt.Sprintf("%s of %s had only just begun", plural(c.Opening, "handshake"), subject)
	case r.socketsPending:
		return fmt.Sprintf("connection tracking has no session of %s left, but the sockets of this machine did not confirm it", subject)
	}
	return fmt.Sprintf("no session of %s is left", subject)
}

// stateWords is a session's state, and why: the kernel's word, or that nothing
// but the server's socket is left of it.
func stateWords(s conntrack.Session) string {
	why := s.Kernel
	if s.State == conntrack.Open && (s.Source == conntrack.FromSockets || slices.Contains(endedStates, s.Kernel)) {
		why = "socket only"
	}
	if why == "" {
		return s.State.String()
	}
	return s.State.String() + " (" + why + ")"
}

// endedStates are the kernel's words for a TCP entry whose session is over.
var endedStates = []string{"LAST_ACK", "TIME_WAIT", "CLOSE"}

func quietWords(d time.Duration) string {
	if d < 0 {
		return "quiet for an unknown time"
	}
	return "quiet for " + short(d)
}

// short is a length of time for people: tenths of seconds below a minute.
func short(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
