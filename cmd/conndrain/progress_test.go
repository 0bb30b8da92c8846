package main

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

func draining(open int, left time.Duration) status {
	return status{
		phase:  lifecycle.Draining,
		counts: conntrack.Counts{Known: true, Open: open, Idle: 1, New: 2},
		left:   left,
	}
}

// TestProgressLines follows half a minute of a wait where no terminal is.
func TestProgressLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := &progress{w: &out, command: "conndrain wait", subject: "10.0.0.1"}
		start := time.Now()
		end := start.Add(31 * time.Second)
		for now := start; now.Before(end); now = time.Now() {
			s := draining(3, end.Sub(now))
			switch since := now.Sub(start); {
			case since < 100*time.Millisecond:
				s = status{phase: lifecycle.Draining, left: end.Sub(now)}
			case since > 26*time.Second:
				s.phase, s.counts.Open, s.counts.Opening = lifecycle.Settling, 0, 1
			case since > 25*time.Second:
				s.counts.Known, s.fault = false, errors.New("no buffer space")
			case since > 2*time.Second && since < 3*time.Second:
				// Restless: only what stands a second later is shown.
				s.counts.Open = int(since / (50 * time.Millisecond))
			}
			p.show(s)
			<-time.After(50 * time.Millisecond)
		}
		want := `phase=draining open=3 idle=1 lost=0 new=2 left=31s
phase=draining open=41 idle=1 lost=0 new=2 left=29s
phase=draining open=3 idle=1 lost=0 new=2 left=28s
phase=draining open=3 idle=1 lost=0 new=2 left=18s
phase=draining open=3 idle=1 lost=0 new=2 left=8s
conndrain wait: the sessions are unknown for now, trying again: no buffer space
phase=draining sessions=unknown left=6s
phase=settling open=0 idle=1 lost=0 new=2 opening=1 left=5s
`
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("stderr (-want +got):\n%s", diff)
		}
	})
}

// TestProgressIsQuietForAShortWait shows nothing that is over at once.
func TestProgressIsQuietForAShortWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := &progress{w: &out, command: "conndrain wait"}
		for range 5 {
			p.show(status{phase: lifecycle.Draining, left: time.Minute})
			<-time.After(100 * time.Millisecond)
		}
		p.clear()
		if out.String() != "" {
			t.Errorf("stderr %q, want nothing", out.String())
		}
	})
}

// TestProgressOnATerminal has one line that renews, makes room for a note, and
// is gone at the end.
func TestProgressOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := &progress{w: &out, screen: &terminal{}, command: "conndrain wait", subject: "10.0.0.1"}
		p.show(status{phase: lifecycle.Draining, left: time.Minute})
		<-time.After(50 * time.Millisecond)
		p.show(draining(3, 59*time.Second)) // too soon
		<-time.After(50 * time.Millisecond)
		p.show(draining(3, 59*time.Second))
		<-time.After(time.Second)
		p.show(draining(3, 59*time.Second)) // nothing new
		s := draining(0, 58*time.Second)
		s.phase, s.counts.Source = lifecycle.Settling, conntrack.FromSockets
		p.show(s)
		p.clear()
		p.clear()
		want := strings.Join([]string{
			"60s left: sessions unknown at 10.0.0.1",
			"59s left: 3 open, 1 idle, 0 lost, 2 new at 10.0.0.1",
			"conndrain wait: " + blindNote + "\n" + eraseLine + "58s left: 0 open, 1 idle, 0 lost, 2 new, settling at 10.0.0.1",
			"",
		}, eraseLine)
		if diff := cmp.Diff(eraseLine+want, out.String()); diff != "" {
			t.Errorf("stderr (-want +got):\n%s", diff)
		}
	})
}

func TestProgressFitsTheTerminal(t *testing.T) {
	var out strings.Builder
	p := &progress{w: &out, screen: &terminal{}, subject: strings.Repeat("fd00::1, ", 20)}
	p.show(draining(3, time.Minute))
	if n := len(strings.TrimPrefix(out.String(), eraseLine)); n != 79 {
		t.Errorf("a line of %d characters on a terminal of 80", n)
	}
}

// TestProgressDoesNotTakePendingForNone has a socket that may be a session.
func TestProgressDoesNotTakePendingForNone(t *testing.T) {
	for _, s := range []status{
		{phase: lifecycle.Draining, counts: conntrack.Counts{Known: true, ReportsPending: true}},
		{phase: lifecycle.Draining, counts: conntrack.Counts{Known: true}, socketsPending: true},
	} {
		if got, want := plainState(s), "phase=draining sessions=unknown"; got != want {
			t.Errorf("line %q, want %q", got, want)
		}
		if got, want := spoken(s), "sessions unknown"; got != want {
			t.Errorf("words %q, want %q", got, want)
		}
	}
	s := draining(3, time.Minute)
	s.socketsPending = true
	if !strings.Contains(plainState(s), "open=3") {
		t.Error("sessions that are there are not shown")
	}
}

func TestTimeLeft(t *testing.T) {
	for _, tc := range []struct {
		left time.Duration
		want string
	}{
		{0, "0s"}, {time.Nanosecond, "0.1s"}, {300 * time.Millisecond, "0.3s"}, {950 * time.Millisecond, "1s"},
		{time.Second, "1s"}, {time.Second + 1, "2s"}, {time.Minute, "60s"}, {5 * time.Minute, "5m"},
		{90 * time.Minute, "1h30m"}, {10 * time.Hour, "10h"}, {2*time.Hour + time.Second, "2h0m1s"},
	} {
		if got := left(tc.left); got != tc.want {
			t.Errorf("%s left: %q, want %q", tc.left, got, tc.want)
		}
	}
}
