package node

import (
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// A release is late by what passes after the last session's end and after all that
// a release waits for by time alone, whichever comes last.
func TestReleaseDelay(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	one, none, unknown := conntrack.Counts{Known: true, Open: 1}, conntrack.Counts{Known: true}, conntrack.Counts{}
	lost := conntrack.Counts{Known: true, Lost: 1}
	type look struct {
		heard, at float64 // heard is 0 where nothing was
		counts    conntrack.Counts
		settles   float64 // until then
	}
	for _, tc := range []struct {
		name      string
		looks     []look
		withdrawn float64
		released  float64
		want      float64 // -1: nothing is measured
	}{
		{"from the change that told of the end", []look{{at: 1, counts: one}, {heard: 10, at: 10.02, counts: none}}, 1, 10.05, .05},
		{"an end that only a look showed", []look{{at: 1, counts: one}, {at: 10.5, counts: none}}, 1, 10.6, .1},
		{"settle comes last", []look{{at: 1, counts: one}, {heard: 2, at: 2.02, counts: none, settles: 6}}, 1, 6.01, .01},
		{"settle came first", []look{{at: 1, counts: none, settles: 6}, {heard: 2, at: 2, counts: one}, {heard: 20, at: 20, counts: none}}, 1, 20.03, .03},
		{"the withdrawal comes last", []look{{at: 1, counts: one}, {heard: 2, at: 2, counts: none}}, 8, 8.04, .04},
		{"lost holds as well", []look{{at: 1, counts: lost}, {heard: 3, at: 3, counts: none}}, 1, 3.02, .02},
		{"the last end counts", []look{{at: 1, counts: one}, {heard: 2, at: 2, counts: none}, {heard: 3, at: 3, counts: one}, {heard: 5, at: 5, counts: none}}, 1, 5.1, .1},
		{"unknown in between is no end", []look{{at: 1, counts: one}, {heard: 2, at: 2, counts: none}, {at: 3, counts: unknown}, {heard: 4, at: 4, counts: none}}, 1, 4.1, .1},
		{"never held", []look{{at: 1, counts: none}}, 1, 6, -1},
		{"never known", []look{{at: 1, counts: unknown}}, 1, 6, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var f freedom
			for _, l := range tc.looks {
				if l.heard > 0 {
					f.changed(at(l.heard))
				}
				f.saw(l.counts.Known, l.counts.Blocking(), at(l.at))
				d := lifecycle.Decision{Phase: lifecycle.Draining}
				if l.settles > 0 {
					d = lifecycle.Decision{Phase: lifecycle.Settling, Next: at(l.settles)}
				}
				f.decided(d)
			}
			due, ok := f.due(at(tc.withdrawn), at(tc.released))
			var r freed
			if ok {
				r.at(due)
			}
			got, ok := r.answered(at(tc.released))
			if ok != (tc.want >= 0) {
				t.Fatalf("measured: %v", ok)
			}
			if ok && (got-time.Duration(tc.want*float64(time.Second))).Abs() > time.Millisecond {
				t.Errorf("late by %s, want %v s", got, tc.want)
			}
			if _, again := r.answered(at(tc.released)); again {
				t.Error("measured twice")
			}
		})
	}
}

func TestNewSessionsAfterTheWithdrawal(t *testing.T) {
	var f freedom
	got := 0
	for _, step := range []struct {
		created int
		routed  bool
	}{
		{2, true},  // before the withdrawal
		{3, false}, // one after
		{3, false},
		{5, false}, // two more
		{1, false}, // another watch, which counts from 0
		{2, false}, // one more
		{7, true},  // routed again
	} {
		got += f.arrived(conntrack.Counts{New: step.created}, step.routed)
	}
	if got != 4 {
		t.Errorf("%d, want 4", got)
	}
}
