package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

func TestSentence(t *testing.T) {
	type counts = conntrack.Counts
	for _, tc := range []struct {
		name   string
		reason lifecycle.Reason
		counts counts
		change func(*result)
		want   string
	}{
		{"nothing was there", lifecycle.Drained, counts{Known: true}, nil,
			"Drained: 10.0.0.1 had no open session (looked for 12.3s)."},
		{"only idle ones", lifecycle.Drained, counts{Known: true, Idle: 2}, nil,
			"Drained: 10.0.0.1 had no open session (looked for 12.3s; 2 idle sessions did not block)."},
		{"some ended", lifecycle.Drained, counts{Known: true, Peak: 7, New: 1, Idle: 1}, nil,
			"Drained: the last session of 10.0.0.1 ended, after 12.3s; at most 7 at a time; 1 began meanwhile; 1 idle session did not block."},
		{"by sockets", lifecycle.Drained, counts{Known: true, Peak: 1, Source: conntrack.FromSockets}, nil,
			"Drained: the last session of 10.0.0.1 ended, after 12.3s; at most 1 at a time; decided by the sockets of this machine."},
		{"between requests", lifecycle.Drained, counts{Known: true, Open: 3}, func(r *result) { r.requests = true },
			"Drained: after 12.3s no request is in flight on the 3 sessions of 10.0.0.1."},
		{"one request", lifecycle.Drained, counts{Known: true, Open: 3}, func(r *result) { r.requests, r.inFlight = true, 1 },
			"Drained: after 12.3s one request is in flight on the 3 sessions of 10.0.0.1: there was no moment without one (--busy-after)."},
		{"requests that nobody could tell", lifecycle.Drained, counts{Known: true, Open: 3}, func(r *result) { r.requests, r.inFlight, r.untold = true, 2, 2 },
			"Drained: after 12.3s no request is known to be in flight on the 3 sessions of 10.0.0.1, of 2 of which nobody can tell: there was no moment without one (--busy-after)."},
		{"expired", lifecycle.Expired, counts{Known: true, Open: 2, Lost: 1, Idle: 4, Active: 1}, nil,
			"Expired: after 12.3s 3 sessions of 10.0.0.1 are left (2 open, 1 lost, 4 idle beside them), 1 with a packet in the last 5 s or an unknown time ago."},
		{"expired, one", lifecycle.Expired, counts{Known: true, Open: 1}, nil,
			"Expired: after 12.3s 1 session of 10.0.0.1 is left (1 open, 0 lost, 0 idle beside them), 0 with a packet in the last 5 s or an unknown time ago."},
		{"expired, never known", lifecycle.Expired, counts{}, func(r *result) { r.everKnown = false },
			"Expired: after 12.3s it is unknown which sessions of 10.0.0.1 live: there was no whole look at the kernel's table."},
		{"expired, sockets never looked at twice", lifecycle.Expired, counts{Known: true, ReportsPending: true}, func(r *result) { r.everKnown = false },
			"Expired: after 12.3s it is unknown which sessions of 10.0.0.1 live: to tell takes two looks at the sockets of this machine, a second apart."},
		{"expired, sockets pending", lifecycle.Expired, counts{Known: true, Open: 2, ReportsPending: true}, nil,
			"Expired: after 12.3s it is unknown which sessions of 10.0.0.1 still live (last known: 2)."},
		{"expired, unknown", lifecycle.Expired, counts{Open: 3, Lost: 1}, nil,
			"Expired: after 12.3s it is unknown which sessions of 10.0.0.1 still live (last known: 4)."},
		{"expired, fault", lifecycle.Expired, counts{}, func(r *result) { r.fault = errors.New("no buffer space") },
			"Expired: after 12.3s it is unknown which sessions of 10.0.0.1 still live: no buffer space."},
		{"expired, handshake", lifecycle.Expired, counts{Known: true, Opening: 1}, nil,
			"Expired: after 12.3s 1 handshake of 10.0.0.1 had only just begun."},
		{"expired, sockets", lifecycle.Expired, counts{Known: true}, func(r *result) { r.socketsPending = true },
			"Expired: after 12.3s connection tracking has no session of 10.0.0.1 left, but the sockets of this machine did not confirm it."},
		{"cancelled", lifecycle.Cancelled, counts{Known: true}, nil,
			"Cancelled after 12.3s: no session of 10.0.0.1 is left."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := result{reason: tc.reason, waited: 12300 * time.Millisecond, counts: tc.counts, lastKnown: tc.counts, everKnown: true}
			if tc.change != nil {
				tc.change(&r)
			}
			if diff := cmp.Diff(tc.want, r.sentence("10.0.0.1")); diff != "" {
				t.Errorf("sentence (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTextListsWhatWasLeft names ten of twelve.
func TestTextListsWhatWasLeft(t *testing.T) {
	r := result{
		reason: lifecycle.Expired, waited: 90 * time.Second, everKnown: true,
		counts: conntrack.Counts{Known: true, Open: 12},
	}
	for range 4 {
		r.left = append(r.left, shown()[:3]...)
	}
	var out strings.Builder
	if err := r.writeText(&out, "10.244.1.7"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	want := []string{
		"  tcp open (ESTABLISHED) from 10.0.0.9:4000 to 10.96.0.10:80, quiet for 3.5s",
		"  tcp lost (CLOSE_WAIT) from 203.0.113.200:51234 to 10.244.1.7:8080, quiet for an unknown time",
		"  udp open from [fd00::9]:4000 to [fd00::7]:53, quiet for 3m0s",
	}
	if diff := cmp.Diff(want, lines[:3]); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	want = []string{
		"  and 2 more",
		"Expired: after 1m30s 12 sessions of 10.244.1.7 are left (12 open, 0 lost, 0 idle beside them), 0 with a packet in the last 5 s or an unknown time ago.",
		"",
	}
	if diff := cmp.Diff(want, lines[10:]); diff != "" {
		t.Errorf("end (-want +got):\n%s", diff)
	}
}

// TestStateWords says what is left of a session that its entry calls over.
func TestStateWords(t *testing.T) {
	for _, tc := range []struct {
		s    conntrack.Session
		want string
	}{
		{conntrack.Session{State: conntrack.Open, Kernel: "ESTABLISHED"}, "open (ESTABLISHED)"},
		{conntrack.Session{State: conntrack.Open, Kernel: "TIME_WAIT"}, "open (socket only)"},
		{conntrack.Session{State: conntrack.Open, Kernel: "CLOSE"}, "open (socket only)"},
		{conntrack.Session{State: conntrack.Open, Kernel: "LAST_ACK"}, "open (socket only)"},
		{conntrack.Session{State: conntrack.Open, Source: conntrack.FromSockets}, "open (socket only)"},
		{conntrack.Session{State: conntrack.Lost, Kernel: "CLOSE_WAIT"}, "lost (CLOSE_WAIT)"},
		{conntrack.Session{State: conntrack.Over, Kernel: "TIME_WAIT"}, "over (TIME_WAIT)"},
		{conntrack.Session{State: conntrack.Open}, "open"},
	} {
		if got := stateWords(tc.s); got != tc.want {
			t.Errorf("%s, %q: %q, want %q", tc.s.State, tc.s.Kernel, got, tc.want)
		}
	}
}
