package hook

import (
	"context"
	"sync"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// askAgain is how soon after a request a connection that nobody has listed leads to
// the next one.
const askAgain = 200 * time.Millisecond

// quiet watches for the moment at which the hook may end by itself, and ends it. It is
// safe for concurrent use.
type quiet struct {
	// end ends the wait.
	end context.CancelFunc

	mu sync.Mutex
	// permission is that of the latest answer, or nil; the looks that count began
	// after it was there.
	permission *lifecycle.WhenQuiet
	since      time.Time
	release    requests.Release
	peers      looks.Peers
	// quietAt is when a pod under requests could have gone last.
	quietAt time.Time
	// leaving is set once the moment has come, and is the last word then.
	leaving *lifecycle.Leaving
	// interrupt ends the request that is under way, if there is one, and asked is when
	// it was sent. interrupted is set if it was ended so.
	interrupt   context.CancelFunc
	asked       time.Time
	interrupted bool
}

// permit takes in what the latest answer says; nil is that it permits nothing.
func (q *quiet) permit(permission *lifecycle.WhenQuiet) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.permission, q.since = permission, time.Now()
	if permission == nil {
		q.release = requests.Release{}
	}
}

// suspend takes the permission away until the next answer, which says whether what was
// seen under it still counts.
func (q *quiet) suspend() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.permission = nil
	q.release.Missed()
}

// look takes in a look.
func (q *quiet) look(s looks.Sight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.leaving != nil {
		return
	}
	if isQuiet(s) {
		q.quietAt = s.At
	}
	q.peers.Look(s)
	p := q.permission
	if p == nil || s.Err != nil || s.At.Before(q.since) {
		q.release.Missed()
		return
	}
	permission := requests.Permission{Quiet: lifecycle.Seconds(p.QuietSeconds), BusyAfter: lifecycle.Seconds(p.BusyAfterSeconds)}
	missing := q.peers.Missing(p.Requests, p.Ignored) + q.peers.Missing(p.Strict, p.Ignored) + s.Uncounted(p.Requests, p.Strict)
	o := q.release.Look(s.At, time.Now(), &permission, stand(s, p), missing)
	switch {
	case o.Go:
		q.leaving = &lifecycle.Leaving{Cut: o.Cut, Untold: o.Untold}
		q.end()
	case o.Unlisted > 0 && !q.asked.IsZero() && time.Since(q.asked) >= askAgain:
		q.askNow()
	}
}

// stand says how each connection of a look counts.
func stand(s looks.Sight, p *lifecycle.WhenQuiet) []requests.Counted {
	ports := make(map[uint16]bool, len(p.IgnoredPorts))
	for _, port := range p.IgnoredPorts {
		ports[port] = true
	}
	counted := make([]requests.Counted, len(s.Counted))
	for i := range s.Counted {
		c := &s.Counted[i]
		standing := requests.Unlisted
		switch {
		case p.Strict.Has(c.Peer):
			standing = requests.ByStrict
		case p.Requests.Has(c.Peer):
			standing = requests.ByWide
		case p.Ignored.Has(c.Peer), ports[c.Local.Port()]:
			standing = requests.Ignored
		}
		counted[i] = requests.Counted{Standing: standing, Verdict: c.Verdict}
	}
	return counted
}

// hold keeps how the request that is about to be asked can be ended.
func (q *quiet) hold(interrupt context.CancelFunc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.interrupt, q.asked, q.interrupted = interrupt, time.Time{}, false
}

// asks notes that it is asked now.
func (q *quiet) asks() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked = time.Now()
}

// answered says whether the request that was asked was ended from here.
func (q *quiet) answered() (interrupted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.interrupt, q.asked = nil, time.Time{}
	return q.interrupted
}

// hurry ends the request that is held now, so that the next one can be asked.
func (q *quiet) hurry() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.askNow()
}

func (q *quiet) askNow() {
	if q.interrupt != nil {
		q.interrupted = true
		q.interrupt()
	}
}

// over is the last word, once the moment has come; nil before that.
func (q *quiet) over() *lifecycle.Leaving {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leaving
}

// lastQuiet is when a pod under requests could have gone last; zero is never.
func (q *quiet) lastQuiet() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.quietAt
}
