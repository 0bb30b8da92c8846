package hook

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// permits is a helper that permits to end between two requests, and lists what it is
// told of. It holds requests until something changes.
type permits struct {
	strict           bool
	quiet, busyAfter time.Duration
	deadline         time.Duration
	// hasty answers at once, whatever it is asked.
	hasty bool
	// change may change each answer to a request.
	change func(r lifecycle.DrainRequest, a *lifecycle.DrainAnswer)

	mu       sync.Mutex
	start    time.Time
	requests []lifecycle.DrainRequest
	left     *lifecycle.Leaving
	leftAt   time.Time
	changed  chan struct{}
}

func newPermits() *permits {
	return &permits{quiet: 10 * time.Second, deadline: time.Minute, start: time.Now(), changed: make(chan struct{})}
}

// answer is a helper.
func (p *permits) answer(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
	changed := p.heard(r)
	hold := time.NewTimer(lifecycle.Seconds(r.WaitSeconds))
	defer hold.Stop()
	if r.Leaving == nil && r.Notified == nil && !p.hasty {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-hold.C:
		case <-changed:
		}
	}
	left := max(0, p.deadline-time.Since(p.start)).Seconds()
	a := lifecycle.DrainAnswer{Phase: "draining", RemainingSeconds: &left, WhenQuiet: &lifecycle.WhenQuiet{
		QuietSeconds: p.quiet.Seconds(), BusyAfterSeconds: p.busyAfter.Seconds(),
	}}
	listed := make(lifecycle.PeerSet)
	if r.Sockets != nil {
		for _, s := range r.Sockets.Inbound {
			listed.Add(s.Peer)
		}
	}
	if p.strict {
		a.WhenQuiet.Strict = listed
	} else {
		a.WhenQuiet.Requests = listed
	}
	if p.change != nil {
		p.change(r, &a)
	}
	b, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	return answers(http.StatusOK, string(b))
}

func (p *permits) heard(r lifecycle.DrainRequest) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
	if r.Leaving != nil && p.left == nil {
		p.left, p.leftAt = r.Leaving, time.Now()
	}
	return p.changed
}

// now makes the requests that are held be answered.
func (p *permits) now() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// all are the requests so far.
func (p *permits) all() []lifecycle.DrainRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]lifecycle.DrainRequest(nil), p.requests...)
}

// last is the last word, or nil, and when it came.
func (p *permits) last() (*lifecycle.Leaving, time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left, p.leftAt
}

func encoded(t *testing.T, what any) []byte {
	t.Helper()
	b, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
