package lifecycle

import (
	"strings"
	"testing"
	"time"
)

func TestNotifyAt(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	length := func(s float64) *time.Duration { d := Seconds(s); return &d }
	at := func(s float64) time.Time { return start.Add(Seconds(s)) }
	for _, tc := range []struct {
		name                       string
		settle, latest, withdrawBy float64
		routed                     bool
		after                      *time.Duration
		want                       float64
	}{
		{"nothing new", 10, 0, 0, false, nil, 3},
		{"half of a short quiet time", 4, 0, 0, false, nil, 2},
		{"no quiet time", 0, 0, 0, false, nil, 0},
		{"something new", 10, 2, 0, false, nil, 5},
		{"always something new, until the quiet time is over", 10, 9, 0, false, nil, 10},
		{"it is asked for at once", 10, 2, 0, false, length(0), 2},
		{"it is asked for later than the quiet time", 10, 2, 0, false, length(20), 20},
		{"hardly any time left", 10, 2, 0, false, nil, 2.5},
		{"hardly any time left, and it is asked for later", 10, 2, 0, false, length(4), 6},
		{"routed for longer than the withdrawal may take", 10, 0, 30, true, nil, 33},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := Observation{WithdrawnAt: start, Routed: tc.routed, Policy: Policy{Settle: Seconds(tc.settle)}}
			if tc.latest > 0 {
				o.LastNew = at(tc.latest)
			}
			if strings.HasPrefix(tc.name, "hardly") {
				o.Deadline = at(5)
			}
			if tc.withdrawBy > 0 {
				o.WithdrawBy = at(tc.withdrawBy)
			}
			if got := o.NotifyAt(tc.after); !got.Equal(at(tc.want)) {
				t.Errorf("%s after the withdrawal, want %s", got.Sub(start), Seconds(tc.want))
			}
		})
	}
}
