package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/conndrain/conndrain/conntrack"
)

// How often the sockets of this machine are looked at.
const (
	// lookAtMost is the pause between looks while only sockets hold the release,
	// and lookShare the share of time that looks may take then: 1/20.
	lookAtMost = 20 * time.Millisecond
	lookShare  = 20
	// lookAtLeast is the pause while they matter at all. Two looks that far apart
	// tell whether conntrack knows of a socket.
	lookAtLeast = time.Second
	// lookAgain is the pause while nothing is left and only quiet time passes.
	lookAgain = lookAtLeast / 2
	// lookSeldom is the pause while conntrack shows open sessions: two looks without
	// a socket end one whose end was not tracked.
	lookSeldom = 10 * time.Second
)

// never is longer than any wait.
const never = time.Duration(math.MaxInt64)

// looker takes one look at the sockets of this network namespace. Those on the
// served ports count even if nothing listens there any more. It may block.
type looker func(ctx context.Context, served []uint16) (conntrack.SocketReport, error)

// sockets decides when to look at this machine's sockets and passes on what
// they say. A nil *sockets never looks and is never pending. It is for one
// goroutine.
type sockets struct {
	look looker
	// say is told what a person should know; it must not block.
	say func(string)

	results chan looked
	// running is true while a look is under way, tried is when the last one began,
	// and failed whether it told nothing. If another one is wanted, it is due at next.
	running, failed, wanted bool
	tried, next             time.Time
	// off is true when looking is of no use.
	off bool
	// knownSince is when conntrack's counts were known, zeroSince when it had no
	// session left; zero where that is not so.
	knownSince, zeroSince time.Time
	// started and finished are those of the last good look, and cost what it took.
	started, finished time.Time
	cost              time.Duration
}

// reporter is told what the sockets are.
type reporter interface {
	Report(conntrack.SocketReport)
}

// looked is what became of one look.
type looked struct {
	report   conntrack.SocketReport
	err      error
	started  time.Time
	finished time.Time
}

func newSockets(look looker, say func(string)) *sockets {
	return &sockets{look: look, say: say, results: make(chan looked, 1)}
}

// keepUp begins a look if one is due and returns whether the sockets have still
// to confirm that no session is left. sessions are those of the counts. It does
// not block.
func (s *sockets) keepUp(ctx context.Context, c conntrack.Counts, sessions func() []conntrack.Session, now time.Time) bool {
	if s == nil || s.off {
		return false
	}
	since(&s.knownSince, c.Known, now)
	since(&s.zeroSince, c.Known && c.Blocking() == 0 && c.Opening == 0, now)
	pause := s.pause(c)
	s.wanted = pause < never
	s.next = s.tried.Add(pause)
	if s.wanted && !s.running && !now.Before(s.next) {
		s.running, s.tried = true, now
		ports := servedPorts(sessions())
		go func() {
			r := looked{started: now}
			r.report, r.err = s.look(ctx, ports)
			r.finished = time.Now()
			s.results <- r
		}()
	}
	return c.ReportsPending || !s.confirmed(now)
}

// since keeps the moment since when something is so.
func since(moment *time.Time, is bool, now time.Time) {
	switch {
	case !is:
		*moment = time.Time{}
	case moment.IsZero():
		*moment = now
	}
}

// confirmed says whether a look that began after conntrack had nothing left is
// recent enough to rely on.
func (s *sockets) confirmed(now time.Time) bool {
	return !s.zeroSince.IsZero() && !s.started.Before(s.zeroSince) &&
		now.Sub(s.finished) <= 2*max(lookAgain, s.affordable())
}

// affordable is the least pause between looks that keeps their cost bounded.
func (s *sockets) affordable() time.Duration {
	return min(max(lookAtMost, lookShare*s.cost), lookAtLeast)
}

// servedPorts are the server's ports of the sessions.
func servedPorts(sessions []conntrack.Session) []uint16 {
	var ports []uint16
	for _, s := range sessions {
		if port := s.Server.Port(); !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// pause is how long after the last look the next one is due, or never.
func (s *sockets) pause(c conntrack.Counts) time.Duration {
	switch {
	case s.failed:
		return lookAtLeast
	case s.started.IsZero():
		return 0 // nothing is known before the first look
	case !c.Known:
		return never // and a further one says nothing beside a table that is not there
	case s.started.Before(s.knownSince), s.started.Before(s.zeroSince):
		return 0
	case c.Held > 0, c.Lost > 0 && c.Lost == c.Blocking():
		return s.affordable()
	case c.ReportsPending:
		return lookAtLeast
	case !s.zeroSince.IsZero():
		return max(lookAgain, s.affordable())
	case c.Lost > 0:
		return lookAtLeast
	case c.Open > 0:
		return lookSeldom
	}
	return never
}

// take passes a look on to the watch.
func (s *sockets) take(r looked, to reporter) {
	s.running, s.failed = false, r.err != nil
	switch {
	case errors.Is(r.err, errors.ErrUnsupported):
		s.off = true
		s.say(fmt.Sprintf("going by connection tracking alone: %v", r.err))
	case r.err != nil:
		s.say(fmt.Sprintf("sockets of this machine are unknown: %v", r.err))
	default:
		// The report's own beginning is what the next one is compared with.
		s.started, s.tried = r.report.At, r.report.At
		s.finished, s.cost = r.finished, r.finished.Sub(r.started)
		to.Report(r.report)
	}
}

// rest is how long nothing has to be looked at.
func (s *sockets) rest(now time.Time) time.Duration {
	if s == nil || s.off || s.running || !s.wanted {
		return never
	}
	return max(0, s.next.Sub(now))
}

// reported yields the look that was begun.
func (s *sockets) reported() <-chan looked {
	if s == nil {
		return nil
	}
	return s.results
}

// join waits for the look that is under way, whose context has ended.
func (s *sockets) join() {
	if s != nil && s.running {
		<-s.results
		s.running = false
	}
}
