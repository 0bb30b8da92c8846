package node

import (
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// looks decide when a pod's sockets have to be looked at, and whether the last look
// confirms what conntrack says. They are used by one goroutine.
type looks struct {
	// knownSince is when conntrack's counts were known, zeroSince when it had no
	// session left; zero where that is not so.
	knownSince, zeroSince time.Time
	// at is when the last look that was handed on began, arrived when it came.
	at, arrived time.Time
	// asked is when a look was last asked for, next when another one is due; zero
	// where none is.
	asked, next time.Time
	// taken is how many were handed on.
	taken int
	// round is when the drain looked up last.
	round time.Time
	// trusted is set while the watch goes by a look.
	trusted bool
}

// How often a pod's sockets are looked at, beside what comes with each of the
// hook's requests. Each look costs the pod and the helper some hundred microseconds.
const (
	// lookSoon is the least pause: conntrack has come to know something, or has
	// nothing left, and the sockets have not been asked since.
	lookSoon = 25 * time.Millisecond
	// lookOften is the pause while nothing but a socket tells of a session's end.
	lookOften = 100 * time.Millisecond
	// lookSlowly is the pause while they may have something to add. Two looks that
	// far apart tell whether conntrack knows of a socket.
	lookSlowly = time.Second
	// firstLooks come at that pace whatever conntrack says: entries of a connection
	// that ended long ago, or of the pod that had the address before, are found out.
	firstLooks = 4
	// lookPatience is how long a hook may take to bring a look before another one is
	// asked, lookValid how long a look confirms that nothing is left, and lookFresh
	// how old it may be when the pod is released.
	lookPatience = 300 * time.Millisecond
	lookValid    = 3 * lookSlowly
	lookFresh    = 500 * time.Millisecond
)

// consult asks for a look if one is due and returns whether the sockets have still
// to confirm the counts. Without a hook that reports they have no say, but what the
// last look left open stays so.
func (v *vigil) consult(c conntrack.Counts, now time.Time) (pending bool) {
	l := &v.looks
	if v.watch == nil {
		*l = looks{}
		return false // nothing is known
	}
	since(&l.knownSince, c.Known, now)
	since(&l.zeroSince, c.Known && v.apart.all() == 0, now)
	l.next = time.Time{}
	if !l.round.IsZero() && now.Sub(l.round) > 2*lookEvery {
		v.sockets.excuse(now) // this process stood still, and no hook could be heard
		v.judges.excuse(now)
	}
	l.round = now
	if !v.sockets.reporting(now) {
		if l.trusted && v.watch != nil {
			l.trusted = false
			v.watch.Unreported() // and counts are taken again when it has changed them
		}
		return c.ReportsPending
	}
	if pause, wanted := l.pause(c); wanted {
		l.next = l.arrived.Add(pause)
		if l.asked.After(l.arrived) {
			l.next = l.asked.Add(lookPatience)
		}
		if !now.Before(l.next) {
			v.askHook(now)
		}
	}
	return c.ReportsPending || !l.confirms(now)
}

// askHook asks one of the hooks for a look.
func (v *vigil) askHook(now time.Time) {
	v.sockets.ask()
	v.looks.asked = now
	v.looks.next = now.Add(lookPatience)
}

// since keeps the moment since when something is so.
func since(moment *time.Time, is bool, now time.Time) {
	switch {
	case !is:
		*moment = time.Time{}
	case moment.IsZero():
		*moment = now
	}
}

// pause is how long after the last look the next one is due.
func (l *looks) pause(c conntrack.Counts) (pause time.Duration, wanted bool) {
	switch {
	case l.arrived.IsZero():
		return lookSoon, true // the watch may know nothing before it
	case !c.Known:
		return 0, false // a look says nothing beside a table that is not there
	case l.at.Before(l.knownSince), l.at.Before(l.zeroSince):
		return lookSoon, true
	case c.Held > 0, c.Lost > 0 && c.Lost == c.Blocking():
		return lookOften, true
	case c.ReportsPending, c.Lost > 0, !l.zeroSince.IsZero(), l.taken < firstLooks:
		return lookSlowly, true
	}
	return 0, false // what comes with each request does
}

// confirms says whether a look that began after conntrack had nothing left is
// recent enough to rely on.
func (l *looks) confirms(now time.Time) bool {
	return !l.zeroSince.IsZero() && !l.at.Before(l.zeroSince) && now.Sub(l.arrived) <= lookValid
}

// handed notes a look that the watch has got.
func (l *looks) handed(r conntrack.SocketReport, now time.Time) {
	if !r.At.After(l.at) {
		return // the watch goes by the later one
	}
	l.at, l.arrived, l.trusted = r.At, now, true
	l.taken++
}

// lastLook holds a release back for a look that is not older than the release is,
// because a session that only sockets show may have begun since the last one.
func (v *vigil) lastLook(d lifecycle.Decision, o lifecycle.Observation, now time.Time) lifecycle.Decision {
	if d.Reason != lifecycle.Drained || o.Policy.Until != lifecycle.UntilSessions || !now.Before(o.Deadline) ||
		!v.sockets.reporting(now) || now.Sub(v.looks.arrived) <= lookFresh {
		return d
	}
	if !v.looks.asked.After(v.looks.arrived) || now.Sub(v.looks.asked) >= lookPatience {
		v.askHook(now)
	}
	next := v.looks.asked.Add(lookPatience)
	if o.Deadline.Before(next) {
		next = o.Deadline
	}
	return lifecycle.Decision{Phase: lifecycle.Settling, Next: next}
}
