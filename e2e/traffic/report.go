// Package traffic has the clients and servers that tests watch while pods end: each protocol with a library that is used
// in production, each transfer with every byte counted and hashed, so that one that was cut is seen as cut.
package traffic

import (
	"slices"
	"sync"
)

// maxErrors is how many different errors a report holds.
const maxErrors = 10

// Report is what became of a client's transfers: started = completed + cut + refused.
type Report struct {
	Protocol  string   `json:"protocol"`
	Started   int      `json:"started"`
	Completed int      `json:"completed"` // every byte came and is right
	Cut       int      `json:"cut"`       // the connection was there, and then not to the end
	Refused   int      `json:"refused"`   // no connection was made
	Bytes     int64    `json:"bytes"`
	Errors    []string `json:"errors,omitempty"` // the first few, each once
}

// tally is a Report that workers fill.
type tally struct {
	mu sync.Mutex
	r  Report
}

// start counts a transfer, unless there were limit already (0: no limit).
func (t *tally) start(limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if limit > 0 && t.r.Started >= limit {
		return false
	}
	t.r.Started++
	return true
}

func (t *tally) end(bytes int64, err error, refused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.r.Bytes += bytes
	switch {
	case err == nil:
		t.r.Completed++
		return
	case refused:
		t.r.Refused++
	default:
		t.r.Cut++
	}
	if text := err.Error(); len(t.r.Errors) < maxErrors && !slices.Contains(t.r.Errors, text) {
		t.r.Errors = append(t.r.Errors, text)
	}
}
