package main

import (
	"encoding/json"
	"math"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests"
)

// result is how a wait ended.
type result struct {
	reason lifecycle.Reason
	waited time.Duration
	// counts are those of the end, last known the latest that were certain.
	counts, lastKnown conntrack.Counts
	// everKnown is false if there was no moment at which they were.
	everKnown bool
	// socketsPending is true if the sockets of this machine were not done.
	socketsPending bool
	// fault is why the end's counts are unknown, if the kernel could not be asked.
	fault error
	// requests is set where the wait was for requests. doing then counts the
	// connections by what they were doing at the end, nil where nobody could know, and
	// inFlight those that a release cuts. blind is why requests could not be told.
	requests bool
	doing    map[requests.Class]int
	inFlight int
	// untold are those of inFlight of which nobody could tell.
	untold int
	blind  string
	// left are sessions that still blocked when the time was up.
	left []conntrack.Session
}

// certain says whether counts can be shown. They cannot while a socket may still
// turn out to be a session that conntrack does not see, and neither can a zero
// that the sockets have yet to confirm.
func certain(c conntrack.Counts, socketsPending bool) bool {
	unconfirmed := socketsPending && c.Blocking() == 0
	return c.Known && !c.ReportsPending && !unconfirmed
}

// known says whether the end's counts are certain.
func (r result) known() bool { return certain(r.counts, r.socketsPending) }

// cut is how many sessions a release at the deadline cuts: what was last known.
// It is nil where nobody could know, also where that was zero but may be no more.
func (r result) cut() *int {
	cut := r.lastKnown.Blocking()
	switch {
	case r.requests && r.reason != lifecycle.Cancelled && r.doing != nil && r.blind == "":
		return &r.inFlight
	case !r.everKnown:
		return nil
	case r.reason != lifecycle.Expired:
		return new(0)
	case cut == 0 && !r.known():
		return nil
	}
	return &cut
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
	if r.known() {
		o.Open, o.Idle, o.Lost = &r.counts.Open, &r.counts.Idle, &r.counts.Lost
	}
	if r.everKnown {
		o.Cut, o.Peak, o.New = r.cut(), &r.lastKnown.Peak, &r.lastKnown.New
	}
	if !r.requests {
		return json.Marshal(o)
	}
	var between *int
	if r.doing != nil && r.blind == "" {
		n := r.doing[requests.Between]
		between = &n
	}
	return json.Marshal(struct {
		object
		Between *int `json:"between"`
	}{o, between})
}

// seconds is a length of time in seconds, to the millisecond.
func seconds(d time.Duration) float64 {
	return math.Round(d.Seconds()*1000) / 1000
}
