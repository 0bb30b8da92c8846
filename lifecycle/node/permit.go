package node

import (
	"maps"
	"slices"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

const (
	// permitPause is how long a permission stands before other clients in it are worth
	// an answer, and permitShare what each of them adds to that. A hook holds for
	// connections that it was not told of, so that an old list only costs time.
	permitPause = 100 * time.Millisecond
	permitShare = 50 * time.Microsecond
)

// permit lets the hooks end their wait by themselves, or takes that back at once.
func (v *vigil) permit(d lifecycle.Decision, now time.Time) {
	v.renewAt = time.Time{}
	switch {
	case d.Phase == lifecycle.Released:
		return // that is what the hooks are told next
	case !d.WhenQuiet:
		v.drain.permit(nil)
		return
	}
	next := v.whenQuiet()
	if before, since := v.permission(); before != nil && sameRules(before, next) {
		if samePeers(before, next) {
			return
		}
		due := since.Add(permitPause + permitShare*time.Duration(v.apart.named()))
		if now.Before(due) && !holdsAgain(before, next) {
			v.renewAt = due
			return
		}
	}
	v.drain.permit(next)
}

// whenQuiet is what a hook has to know to end its wait.
func (v *vigil) whenQuiet() *lifecycle.WhenQuiet {
	s := v.settingsNow()
	q := &lifecycle.WhenQuiet{
		Requests: v.apart.wide, Strict: v.apart.strict, Ignored: v.apart.ignored,
		IgnoredPorts:     slices.Concat(sideways(v.current(), v.target.Ports), v.sockets.ownPorts(), leftPorts(v.apart.untils, v.target.Ports)),
		QuietSeconds:     lifecycle.DefaultQuiet.Seconds(),
		BusyAfterSeconds: lifecycle.DefaultBusyAfter.Seconds(),
	}
	slices.Sort(q.IgnoredPorts)
	q.IgnoredPorts = slices.Compact(q.IgnoredPorts)
	if s.Quiet != nil {
		q.QuietSeconds = s.Quiet.Seconds()
	}
	if s.IdleAfter > 0 { // a connection that has been silent for so long holds nothing
		q.QuietSeconds = min(q.QuietSeconds, s.IdleAfter.Seconds())
	}
	if s.BusyAfter != nil {
		q.BusyAfterSeconds = s.BusyAfter.Seconds()
	}
	return q
}

// leftPorts are the served ports whose sessions are left to the application.
func leftPorts(u lifecycle.Untils, served []uint16) []uint16 {
	if len(served) == 0 {
		served = slices.Collect(maps.Keys(u.Ports))
	}
	return slices.DeleteFunc(slices.Clone(served), func(port uint16) bool { return u.Of(port) != lifecycle.UntilWithdrawn })
}

func sameRules(a, b *lifecycle.WhenQuiet) bool {
	return a.QuietSeconds == b.QuietSeconds && a.BusyAfterSeconds == b.BusyAfterSeconds && slices.Equal(a.IgnoredPorts, b.IgnoredPorts)
}

func samePeers(a, b *lifecycle.WhenQuiet) bool {
	return maps.Equal(a.Requests, b.Requests) && maps.Equal(a.Strict, b.Strict) && maps.Equal(a.Ignored, b.Ignored)
}

// holdsAgain says whether a client that was to be ignored holds by now, as one does that
// was idle.
func holdsAgain(before, next *lifecycle.WhenQuiet) bool {
	for peer := range before.Ignored {
		if (next.Requests.Has(peer) || next.Strict.Has(peer)) && !next.Ignored.Has(peer) {
			return true
		}
	}
	return false
}

// permission is what the hooks are told now, and since when.
func (d *drain) permission() (*lifecycle.WhenQuiet, time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.quiet, d.quietSince
}

// permit publishes a permission, which does not change any more, or takes it back.
// Hooks with a request here are answered.
func (d *drain) permit(q *lifecycle.WhenQuiet) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q == nil && d.quiet == nil {
		return
	}
	d.quiet, d.quietSince = q, time.Now()
	d.tellHeld()
}

// tellHeld makes the held requests look whether there is something for them. The mutex
// is held.
func (d *drain) tellHeld() {
	close(d.news)
	d.news = make(chan struct{})
}

// stale says whether the hook goes by a permission, or by none, that is not the present
// one. What it had from another helper is. The mutex is held.
func (d *drain) stale(c *caller) bool {
	switch {
	case !c.looks || !c.does(lifecycle.CanJudge):
		return false
	case c.had.IsZero():
		return d.quiet != nil || c.mark != ""
	}
	return d.quietSince.After(c.had)
}

// leave takes in the last word of a hook that has ended its wait by itself. Several
// that leave at once have cut the same requests.
func (d *drain) leave(l lifecycle.Leaving) {
	d.mu.Lock()
	if d.lastWord == nil || l.Cut > d.lastWord.Cut {
		d.lastWord = &l
	}
	d.mu.Unlock()
	d.notify()
}

// leaving returns the last word that came since the last call, or nil.
func (d *drain) leaving() *lifecycle.Leaving {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lastWord
	d.lastWord = nil
	return l
}

// ended lets all hooks go where one has gone by itself, unless something came that
// holds the others. Where nothing but a new handshake does, and the pod ends without
// them, that one's word is how it went: the last deletion of a pod takes all its time. Where
// the pod is gone, or its sessions and its hooks are, they may all have ended by themselves
// although no word came: a hook does not wait until it is heard. One that has a request here
// has not ended.
func (v *vigil) ended(d lifecycle.Decision) lifecycle.Decision {
	l := v.leaving()
	if l != nil {
		v.hearWord(*l)
	}
	v.before = v.apart.holding
	before, _ := v.permission()
	v.permitted = before != nil || v.permitted && !v.judges.asking()
	gone := d.Reason == lifecycle.Cancelled && v.isGone()
	switch {
	case gone && v.word != nil && v.apart.sessions == 0:
	case gone && v.word == nil && v.permitted && !v.judges.asking():
		v.unheard = true
		return lifecycle.Decision{Phase: lifecycle.Released, Reason: lifecycle.Drained}
	case d.Reason == lifecycle.Expired && v.word != nil && v.apart.counts.Known && !v.pending && v.apart.all() == 0:
	case l == nil, d.Phase == lifecycle.Released:
		v.unheard = d.Reason == lifecycle.Drained && v.word == nil && v.permitted && !v.judges.present(time.Now())
		return d
	case before == nil || !d.WhenQuiet:
		v.judges.gone()
		v.log.Info("a hook has ended its wait by itself, and something holds the others", "phase", d.Phase.String())
		return d
	}
	v.endedBy = v.word
	return lifecycle.Decision{Phase: lifecycle.Released, Reason: lifecycle.Drained}
}

// hearWord takes in the last word of a hook, which has cut no more requests than there were
// sessions: as it ended, or a look before, since those of its container end with it.
func (v *vigil) hearWord(l lifecycle.Leaving) {
	of := v.apart.holding
	if v.before.requests > of.requests {
		of = v.before
	}
	word := lifecycle.Leaving{Cut: max(0, min(l.Cut, of.requests))}
	word.Untold = max(0, min(l.Untold, word.Cut))
	if v.word == nil || word.Cut > v.word.Cut {
		v.word, v.wordOf = &word, of
	}
}

// parted is the last word of a hook that went before the others, which something held. What
// is left of its sessions is none of what it cut.
func (v *vigil) parted(left []conntrack.Session) lifecycle.Leaving {
	if v.word == nil || v.endedBy != nil {
		return lifecycle.Leaving{}
	}
	gone := len(v.wordOf.wide) + len(v.wordOf.strict)
	for i := range left {
		if client := left[i].Client; v.wordOf.wide.Has(client) || v.wordOf.strict.Has(client) {
			gone--
		}
	}
	cut := min(v.word.Cut, max(0, gone))
	return lifecycle.Leaving{Cut: cut, Untold: min(v.word.Untold, cut)}
}
