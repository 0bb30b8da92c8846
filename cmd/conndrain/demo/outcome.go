package demo

import (
	"slices"
	"time"
)

// outcome is what one way of ending the pod did to the downloads.
type outcome struct {
	What string `json:"what"`
	// Released is when the pod was ended, seen from its deletion.
	Released seconds `json:"releasedSeconds"`
	// Cut is how many downloads were still running then.
	Cut int `json:"cut"`
	// Wasted is how long the pod stayed after its last download.
	Wasted seconds `json:"wastedSeconds"`
}

// sleeps are what people write into a preStop hook.
var sleeps = []struct {
	what string
	time time.Duration
}{{"sleep 5", 5 * time.Second}, {"sleep 30", 30 * time.Second}}

// compare computes what each way would have done to downloads that end as
// recorded, seen from the pod's deletion, and what the real wait did that
// released at released and cut that many. There must be one download at least.
func compare(ends []time.Duration, released time.Duration, cut int) []outcome {
	last := slices.Max(ends)
	wasted := func(at time.Duration) seconds { return seconds(max(0, at-last)) }
	var outcomes []outcome
	for _, s := range sleeps {
		o := outcome{What: s.what, Released: seconds(s.time), Wasted: wasted(s.time)}
		for _, end := range ends {
			if end > s.time {
				o.Cut++
			}
		}
		outcomes = append(outcomes, o)
	}
	return append(outcomes, outcome{What: "conndrain", Released: seconds(released), Cut: cut, Wasted: wasted(released)})
}
