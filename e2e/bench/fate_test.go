package main

import (
	"testing"
	"time"

	"github.com/conndrain/conndrain/e2e/traffic"
)

func TestExcessIsAfterSettleAndTheLastSession(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1000+int64(seconds), 0) }
	for _, test := range []struct {
		name             string
		began, ended     int // of the latest session, seconds after the deletion
		gone             int
		excess, terminal time.Duration
	}{
		{"the last session is longer than settle", -1, 11, 12, time.Second, 12 * time.Second},
		{"settle is longer than the last session", -8, 3, 8, 2 * time.Second, 8 * time.Second},
		{"a session after the withdrawal begins settle again", 4, 6, 10, time.Second, 10 * time.Second},
	} {
		f := fate{deleted: at(0), withdrawn: at(1), gone: at(test.gone), told: &traffic.Termination{
			At: at(test.gone), Served: traffic.Served{StreamBegan: at(test.began), StreamEnded: at(test.ended)},
		}}
		if f.excess() != test.excess || f.terminating() != test.terminal {
			t.Errorf("%s: %s of %s, want %s of %s", test.name, f.excess(), f.terminating(), test.excess, test.terminal)
		}
	}
}
