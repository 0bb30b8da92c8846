package demo

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs, -update writes it anew:\n%s", path, diff)
	}
}

// recorded is a run as it would be if all went by plan.
func recorded(seed uint64) result {
	r := result{
		Seed:      seed,
		Client:    netip.MustParseAddr("192.168.10.20"),
		Service:   netip.MustParseAddrPort("10.96.0.10:80"),
		Pod:       netip.MustParseAddrPort("10.244.1.7:8080"),
		Reason:    "Drained",
		Idle:      idle{After: seconds(idleAfter), Sessions: 1, Quiet: seconds(15400 * time.Millisecond), OpenWithout: 1},
		Uncounted: uncounted{Metrics: 1, Outbound: 1},
		Timeline: []moment{
			{After: seconds(120 * time.Millisecond), Known: true, Open: 8},
			{After: seconds(2001 * time.Millisecond), Known: true, Open: 8, New: 1},
			{After: seconds(3 * time.Second)},
			{After: seconds(14 * time.Second), Known: true, Open: 1, Lost: 1, Idle: 1, New: 1},
		},
	}
	for _, p := range newPlan(seed) {
		r.Downloads = append(r.Downloads, download{
			Name: p.name, Begun: seconds(p.begin), Ended: seconds(p.begin + p.length), Bytes: p.size, Complete: true,
		})
	}
	r.Released = seconds(slices.Max(r.ends()) + 3*time.Millisecond)
	r.Table = compare(r.ends(), time.Duration(r.Released), r.cut())
	return r
}

// tell writes all that a run tells.
func tell(t *testing.T, r result, color bool) []byte {
	t.Helper()
	var b bytes.Buffer
	talk := text{w: &b, color: color}
	talk.intro(r, 7)
	talk.deleted(r)
	for i, m := range r.Timeline {
		talk.moment(m, "A B C D E F G "+[]string{" ", "H", "H", "."}[i], []string{"", "H comes late", "", "H complete; the pod ends"}[i])
	}
	talk.summary(r)
	if talk.err != nil {
		t.Fatal(talk.err)
	}
	return b.Bytes()
}

func TestText(t *testing.T) {
	plain := tell(t, recorded(1), false)
	golden(t, "seed1.golden", plain)
	golden(t, "seed1-color.golden", tell(t, recorded(1), true))
	for line := range strings.Lines(string(plain)) {
		if len(strings.TrimRight(line, "\n")) > 80 {
			t.Errorf("longer than 80 characters: %s", line)
		}
	}
}

// Other lengths, another table.
func TestSeedChangesTheTable(t *testing.T) {
	tables := map[string]uint64{}
	lengths := map[string]uint64{}
	cuts := map[int]bool{}
	for seed := range uint64(20) {
		r := recorded(seed)
		table := (&text{}).table(r.Table, len(r.Downloads))
		tables[table] = seed
		if key := fmt.Sprint(r.ends()); lengths[key] == 0 {
			lengths[key] = seed + 1
		} else {
			t.Errorf("seeds %d and %d have the same lengths", lengths[key]-1, seed)
		}
		cuts[r.Table[0].Cut] = true
	}
	// Tenths of seconds may be the same by chance.
	if len(tables) < 15 {
		t.Errorf("20 seeds have only %d tables", len(tables))
	}
	if len(cuts) < 3 {
		t.Errorf("sleep 5 always cuts %v", cuts)
	}
	r := recorded(2)
	golden(t, "seed2.golden", []byte((&text{}).table(r.Table, len(r.Downloads))))
}

func TestCompare(t *testing.T) {
	ends := []time.Duration{2 * time.Second, 5 * time.Second, 5001 * time.Millisecond, 12 * time.Second}
	for _, tt := range []struct {
		name     string
		ends     []time.Duration
		released time.Duration
		cut      int
		want     []outcome
	}{
		{"between the sleeps", ends, 12500 * time.Millisecond, 0, []outcome{
			{"sleep 5", seconds(5 * time.Second), 2, 0},
			{"sleep 30", seconds(30 * time.Second), 0, seconds(18 * time.Second)},
			{"conndrain", seconds(12500 * time.Millisecond), 0, seconds(500 * time.Millisecond)},
		}},
		{"after both", []time.Duration{time.Second, 31 * time.Second}, 31 * time.Second, 0, []outcome{
			{"sleep 5", seconds(5 * time.Second), 1, 0},
			{"sleep 30", seconds(30 * time.Second), 1, 0},
			{"conndrain", seconds(31 * time.Second), 0, 0},
		}},
		{"before both", []time.Duration{time.Second}, 1001 * time.Millisecond, 0, []outcome{
			{"sleep 5", seconds(5 * time.Second), 0, seconds(4 * time.Second)},
			{"sleep 30", seconds(30 * time.Second), 0, seconds(29 * time.Second)},
			{"conndrain", seconds(1001 * time.Millisecond), 0, seconds(time.Millisecond)},
		}},
		{"a wait that gave up", ends, 11 * time.Second, 1, []outcome{
			{"sleep 5", seconds(5 * time.Second), 2, 0},
			{"sleep 30", seconds(30 * time.Second), 0, seconds(18 * time.Second)},
			{"conndrain", seconds(11 * time.Second), 1, 0},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, compare(tt.ends, tt.released, tt.cut)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What is not whole is said, and what was not idle too.
func TestWords(t *testing.T) {
	r := recorded(1)
	r.Downloads[2].Complete = false
	r.Table = compare(r.ends(), time.Duration(r.Released), r.cut())
	r.Idle = idle{After: seconds(idleAfter)}
	got := string(tell(t, r, false))
	for _, want := range []string{"1 of 8", "1 of them not whole", "was not idle at the end"} {
		if !strings.Contains(got, want) {
			t.Errorf("nothing of %q in:\n%s", want, got)
		}
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration][2]string{
		0:                        {"under 1 ms", "under 1 ms"},
		7 * time.Millisecond:     {"7 ms", "7 ms"},
		120 * time.Millisecond:   {"0.1 s", "0.1 s"},
		990 * time.Millisecond:   {"1 s", "1.0 s"},
		3012 * time.Millisecond:  {"3 s", "3.0 s"},
		15300 * time.Millisecond: {"15.3 s", "15.3 s"},
	} {
		if got := [2]string{seconds(d).short(), seconds(d).exact()}; got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := recorded(1).writeJSON(&b); err != nil {
		t.Fatal(err)
	}
	if bytes.Count(b.Bytes(), []byte("\n")) != 1 {
		t.Errorf("not one line: %s", b.Bytes())
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	golden(t, "seed1.json.golden", indented.Bytes())
}
