package demo

import (
	"encoding/json"
	"io"
	"math"
	"net/netip"
	"time"
)

// seconds is a length of time that JSON has as a number of seconds, to the
// millisecond.
type seconds time.Duration

// MarshalJSON writes the number.
func (s seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(math.Round(time.Duration(s).Seconds()*1000) / 1000)
}

// result is all that a run recorded. Times are seen from the pod's deletion.
type result struct {
	Seed      uint64         `json:"seed"`
	Client    netip.Addr     `json:"client"`
	Service   netip.AddrPort `json:"service"`
	Pod       netip.AddrPort `json:"pod"`
	Reason    string         `json:"reason"`
	Released  seconds        `json:"releasedSeconds"`
	Downloads []download     `json:"downloads"`
	Timeline  []moment       `json:"timeline"`
	Idle      idle           `json:"idle"`
	Uncounted uncounted      `json:"uncounted"`
	Table     []outcome      `json:"table"`
}

// download is what became of one.
type download struct {
	Name  string  `json:"name"`
	Begun seconds `json:"begunSeconds"`
	Ended seconds `json:"endedSeconds"`
	// Bytes arrived; Complete says that they were all of them, and the right ones.
	Bytes    int64 `json:"bytes"`
	Complete bool  `json:"complete"`
}

// moment is what the wait saw at one time.
type moment struct {
	After seconds `json:"afterSeconds"`
	Known bool    `json:"known"`
	Open  int     `json:"open"`
	Idle  int     `json:"idle"`
	Lost  int     `json:"lost"`
	New   int     `json:"new"`
}

// idle is how the keep-alive connection was treated.
type idle struct {
	// After is the idle rule of the wait.
	After seconds `json:"idleAfterSeconds"`
	// Sessions were idle at the release; Quiet is for how long one of them had no
	// packet.
	Sessions int     `json:"sessions"`
	Quiet    seconds `json:"quietSeconds"`
	// OpenWithout is what a second wait without the rule still saw open then.
	OpenWithout int `json:"openWithoutIdleAfter"`
}

// uncounted are the pod's other sessions that lived at the release.
type uncounted struct {
	Metrics  int `json:"metrics"`
	Outbound int `json:"outbound"`
}

// cut counts the downloads that did not arrive whole.
func (r result) cut() int {
	n := 0
	for _, d := range r.Downloads {
		if !d.Complete {
			n++
		}
	}
	return n
}

// ends are the recorded ends of the downloads.
func (r result) ends() []time.Duration {
	ends := make([]time.Duration, len(r.Downloads))
	for i, d := range r.Downloads {
		ends[i] = time.Duration(d.Ended)
	}
	return ends
}

func (r result) writeJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }
