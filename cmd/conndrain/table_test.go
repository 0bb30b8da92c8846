package main

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack"
)

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// shown are sessions of every look.
func shown() []conntrack.Session {
	return []conntrack.Session{
		{
			Protocol: conntrack.TCP, State: conntrack.Open, Kernel: "ESTABLISHED", Quiet: 3500 * time.Millisecond,
			Client: addrPort("10.0.0.9:4000"), Origin: addrPort("10.0.0.9:4000"),
			Server: addrPort("10.244.1.7:8080"), Destination: addrPort("10.96.0.10:80"),
		},
		{
			Protocol: conntrack.TCP, State: conntrack.Lost, Kernel: "CLOSE_WAIT", Quiet: -1, ClosedFirst: conntrack.ClientSide,
			Client: addrPort("10.244.1.1:61000"), Origin: addrPort("203.0.113.200:51234"),
			Server: addrPort("10.244.1.7:8080"), Destination: addrPort("10.244.1.7:8080"),
		},
		{
			Protocol: conntrack.UDP, State: conntrack.Open, Quiet: 3 * time.Minute,
			Client: addrPort("[fd00::9]:4000"), Origin: addrPort("[fd00::9]:4000"),
			Server: addrPort("[fd00::7]:53"), Destination: addrPort("[fd00::7]:53"),
		},
		{
			Protocol: conntrack.TCP, State: conntrack.Idle, Offloaded: true, Quiet: 5 * time.Hour,
			Client: addrPort("10.0.0.9:4001"), Origin: addrPort("10.0.0.9:4001"),
			Server: addrPort("10.244.1.7:8080"), Destination: addrPort("10.244.1.7:8080"),
		},
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	if _, err := newTable(shown(), nil).WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	want := `PROTO   CLIENT                                    SERVER            ASKED FOR         STATE   KERNEL        QUIET     CLOSED FIRST
tcp     10.0.0.9:4000                             10.244.1.7:8080   10.96.0.10:80     open    ESTABLISHED   3s        -
tcp     203.0.113.200:51234 as 10.244.1.1:61000   10.244.1.7:8080   10.244.1.7:8080   lost    CLOSE_WAIT    unknown   client
udp     [fd00::9]:4000                            [fd00::7]:53      [fd00::7]:53      open    -             3m        -
tcp     10.0.0.9:4001                             10.244.1.7:8080   10.244.1.7:8080   idle    offloaded     5h        -
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// TestTableFits leaves out what is needed least.
func TestTableFits(t *testing.T) {
	sessions := []conntrack.Session{shown()[0]}
	sessions[0].Origin, sessions[0].Client = addrPort("203.0.113.200:51234"), addrPort("203.0.113.200:51234")
	for _, tc := range []struct {
		width int
		head  string
	}{
		{120, "PROTO   CLIENT                SERVER            ASKED FOR       STATE   KERNEL        QUIET   CLOSED FIRST"},
		{99, "PROTO  CLIENT               SERVER           ASKED FOR      STATE  KERNEL       QUIET  CLOSED FIRST"},
		{98, "PROTO  CLIENT               SERVER           STATE  KERNEL       QUIET  CLOSED FIRST"},
		{79, "CLIENT               SERVER           STATE  KERNEL       QUIET  CLOSED FIRST"},
		{70, "CLIENT               SERVER           STATE  QUIET  CLOSED FIRST"},
		{40, "CLIENT              SERVER          STATE QUIET CLOSED FIRST"},
	} {
		table := newTable(sessions, nil)
		table.fit(tc.width)
		head, row, _ := strings.Cut(string(table.bytes()), "\n")
		if diff := cmp.Diff(tc.head, head); diff != "" {
			t.Errorf("%d wide (-want +got):\n%s", tc.width, diff)
		}
		if !strings.Contains(row, "open") || strings.Contains(row, "10.96.0.10") != strings.Contains(head, "ASKED FOR") {
			t.Errorf("%d wide: row %q", tc.width, row)
		}
	}
}

func TestScreenShowsWhatFits(t *testing.T) {
	counts := conntrack.Counts{Known: true, Open: 2, Idle: 1, Lost: 1, Opening: 1}
	title := summary("10.244.1.7", 4, counts)
	rows := func(width, height int) []string {
		p := strings.TrimSuffix(strings.TrimPrefix(string(picture(title, shown(), nil, width, height)), goHome), eraseDown)
		return strings.Split(strings.TrimSuffix(p, eraseRest+"\r\n"), eraseRest+"\r\n")
	}
	want := []string{
		"4 sessions of 10.244.1.7: 2 open, 1 idle, 1 lost, 1 ope",
		"",
		"CLIENT                                  SERVER         ",
		"10.0.0.9:4000                           10.244.1.7:8080",
		"203.0.113.200:51234 as 10.244.1.1:61000 10.244.1.7:8080",
		"and 2 more sessions",
	}
	if diff := cmp.Diff(want, rows(56, 7)); diff != "" {
		t.Errorf("56 x 7 (-want +got):\n%s", diff)
	}
	if n := len(rows(200, 24)); n != 7 {
		t.Errorf("%d lines on a large screen, want all 7", n)
	}
	for height := range 10 {
		if n := len(rows(200, height)); n > max(height-1, 3) {
			t.Errorf("%d lines on a screen of %d", n, height)
		}
	}
}

func TestScreenWritesOnlyWhatChanged(t *testing.T) {
	var out strings.Builder
	v := &screenView{doing: new(observer).now, w: &out, screen: &terminal{}, subject: "10.244.1.7"}
	counts := conntrack.Counts{Known: true, Open: 2}
	for range 3 {
		if err := v.show(shown(), counts, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "CLIENT"); n != 1 {
		t.Errorf("drawn %d times, want once", n)
	}
	counts.Known = false
	if err := v.show(nil, counts, errors.New("no buffer space")); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "The sessions of 10.244.1.7 are unknown. no buffer space") {
		t.Error("unknown is not shown")
	}
}
