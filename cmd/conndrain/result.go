package main

import (
	"encoding/json"
	"math"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// result is how a wait ended.
type result struct {
	reason lifecycle.Reason
	waited time.Duration
	// counts are those of the end, last known the latest that were not unknown.
	counts, lastKnown conntrack.Counts
	// everKnown is false if there was no moment at which the sessions were known.
	everKnown bool
	// socketsPending is true if the sockets of this machine were not done.
	socketsPending bool
	// fault is why the end's counts are unknown, if the kernel could not be asked.
	fault error
	// left are sessions that still blocked when the time was up.
	left []conntrack.Session
}

// cut is how many sessions a release at the deadline cuts, as far as is known.
func (r result) cut() int {
	if r.reason != lifecycle.Expired {
		return 0
	}
	return r.lastKnown.Blocking()
}

// MarshalJSON writes the result as one object. What is unknown is null.
func (r result) MarshalJSON() ([]byte, error) {
	type object struct {
		Reason        lifecycle.Reason `json:"reason"`
		Source        conntrack.Source `json:"source"`
		WaitedSeconds float64          `json:"waitedSeconds"`
		Open          *int             `json:"open"`
		Idle          *int             `json:"idle"`
		Lost          *int             `json:"lost"`
		Cut           *int             `json:"cut"`
		Peak          *int             `json:"peak"`
		New           *int             `json:"new"`
	}
	o := object{
		Reason:        r.reason,
		Source:        r.counts.Source,
		WaitedSeconds: seconds(r.waited),
	}
	if r.counts.Known {
		o.Open, o.Idle, o.Lost = &r.counts.Open, &r.counts.Idle, &r.counts.Lost
	}
	if r.everKnown {
		cut := r.cut()
		o.Cut, o.Peak, o.New = &cut, &r.lastKnown.Peak, &r.lastKnown.New
	}
	return json.Marshal(o)
}

// seconds is a length of time in seconds, to the millisecond.
func seconds(d time.Duration) float64 {
	return math.Round(d.Seconds()*1000) / 1000
}
