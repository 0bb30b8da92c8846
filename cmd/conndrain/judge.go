package main

import (
	"context"
	"sync"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// judge looks at this namespace's sockets for the moment without a request. A nil
// *judge has nothing to say. It is safe for concurrent use.
type judge struct {
	rule       requests.Standing
	permission requests.Permission
	eyes       *looks.Eyes
	// gone has the latest moment while it lasts.
	gone chan moment
	// changes receives after the first look, and when another number of connections counts.
	changes chan struct{}

	mu      sync.Mutex
	release requests.Release
	peers   looks.Peers
	last    looks.Sight
	// looked is set after the first look. counting is how many connections count, by the
	// last one that did not fail.
	looked   bool
	counting int
	// allowed is set while nothing holds but requests, and since when; listed are the
	// clients of the sessions that conntrack knows of.
	allowed bool
	since   time.Time
	listed  lifecycle.PeerSet
}

// anotherLook is how long a look may take to come that is younger than a moment which is
// not requests.Recent.
const anotherLook = time.Second

// moment is one without a request, or with few of them.
type moment struct {
	requests.Outcome
	// at is when the look began that shows it; where the one before has shown it, too, when
	// it ended.
	at time.Time
}

// start begins to look and returns how to end that, which blocks until it is done.
func (j *judge) start(ctx context.Context) (stop func()) {
	if j == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { j.eyes.Run(ctx) })
	end := j.eyes.Begin(j.look)
	return func() {
		end()
		cancel()
		running.Wait()
	}
}

// look takes in a look.
func (j *judge) look(s looks.Sight) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last = s
	j.peers.Look(s)
	var permission *requests.Permission
	if j.allowed && s.Err == nil && s.At.After(j.since) {
		permission = &j.permission
	}
	counted := make([]requests.Counted, len(s.Counted))
	for i := range s.Counted {
		counted[i] = requests.Counted{Standing: j.rule, Verdict: s.Counted[i].Verdict}
	}
	now := time.Now()
	o := j.release.Look(s.At, now, permission, counted, j.unseen(s))
	j.forget()
	if o.Go {
		m := moment{o, s.At}
		if o.Again {
			m.at = now
		}
		j.gone <- m // there is room: nobody else sends
	}
	j.count(s)
}

// forget ends a moment that nobody has acted on yet.
func (j *judge) forget() {
	select {
	case <-j.gone:
	default:
	}
}

// count keeps how many connections count. The mutex is held.
func (j *judge) count(s looks.Sight) {
	before, first := j.counting, !j.looked
	j.looked = true
	if s.Err == nil {
		j.counting = len(s.Counted)
	}
	if j.counting == before && !first {
		return
	}
	select {
	case j.changes <- struct{}{}:
	default:
	}
}

// connected is how many connections count, also those to addresses that were not there,
// or not asked for, when the watch began.
func (j *judge) connected() int {
	if j == nil {
		return 0
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.counting
}

// pending says that there was no look yet.
func (j *judge) pending() bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.looked
}

// confirm looks once more. It blocks for some milliseconds, or until ctx ends. A look that
// fails changes nothing.
func (j *judge) confirm(ctx context.Context) {
	if j != nil {
		j.eyes.Fresh(ctx)
	}
}

// unseen counts the sessions that conntrack knows of and the look tells nothing of.
func (j *judge) unseen(s looks.Sight) int {
	return j.peers.Missing(j.listed, nil) + s.Uncounted(j.listed)
}

// allow says whether nothing but requests holds, given the sessions that are known.
func (j *judge) allow(allowed bool, sessions []conntrack.Session) {
	if j == nil {
		return
	}
	listed := make(lifecycle.PeerSet, len(sessions))
	for _, s := range sessions {
		if s.Protocol == conntrack.TCP && (s.State == conntrack.Open || s.State == conntrack.Lost) {
			listed.Add(s.Client)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if allowed && !j.allowed {
		j.since = time.Now()
	}
	j.allowed, j.listed = allowed, listed
	if !allowed {
		j.forget() // something has come since
		j.release.Missed()
	}
}

// went receives the moment once it has come.
func (j *judge) went() <-chan moment {
	if j == nil {
		return nil
	}
	return j.gone
}

// newest is a moment or, if that is old by now, the one of a look that begins now; ok is
// false where that look sees a request, or where none comes for so long. It blocks for
// anotherLook at the most, and until the deadline.
func (j *judge) newest(ctx context.Context, m moment, deadline time.Time) (_ moment, ok bool) {
	if until := time.Now().Add(anotherLook); until.Before(deadline) {
		deadline = until
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for time.Since(m.at) > requests.Recent {
		if s := j.eyes.Fresh(ctx); s.At.IsZero() {
			return m, false // none came
		}
		select {
		case m = <-j.gone:
		default:
			return m, false
		}
	}
	return m, true
}

// changed receives after the first look, and when another number of connections counts.
func (j *judge) changed() <-chan struct{} {
	if j == nil {
		return nil
	}
	return j.changes
}

// classes count the connections by what they are doing, and holding are those that
// hold the release. known is false where the last look does not tell.
func (j *judge) classes() (doing map[requests.Class]int, holding int, known bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	doing = make(map[requests.Class]int)
	for i := range j.last.Counted {
		v := j.last.Counted[i].Verdict
		class := v.Wide
		if j.rule == requests.ByStrict {
			class = v.Strict
		}
		doing[class]++
		silent := class == requests.Unknown && j.permission.Quiet > 0 && v.Silent >= j.permission.Quiet
		if class != requests.Between && !silent {
			holding++
		}
	}
	holding += j.unseen(j.last)
	return doing, holding, j.last.Err == nil && !j.last.At.IsZero()
}

// blind is why requests cannot be told, or empty.
func (j *judge) blind() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last.At.IsZero() {
		return ""
	}
	return j.last.Blind()
}
