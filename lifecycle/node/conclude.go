package node

import (
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests"
)

// conclude publishes a decision, and tells people where it changes something.
func (v *vigil) conclude(d lifecycle.Decision, o lifecycle.Observation, c conntrack.Counts, now time.Time) {
	pod, waited := v.current(), v.waited(now)
	v.save(o, now)
	var left []conntrack.Session
	if v.watch != nil && (c.Blocking() > 0 || v.apart.all() > 0) && (d.Phase == lifecycle.Released || d.Phase == lifecycle.Draining && !v.said) {
		v.hold(c, now, true)
		left = v.left()
	}
	v.measure(d, c, now)
	v.blind.saw(c, d.Phase == lifecycle.Released)
	v.sight.notes(v.unknownBecause())
	if d.Phase == lifecycle.Released {
		v.sight.closes(left, v.judges.classes(now))
		if v.endedBy != nil {
			v.sight.letGo(v.apart.requests - v.endedBy.Cut) // the hook's last look, which nobody reports
		}
	}
	// What is left to the application is not what the pod is held for, nor cut.
	held := v.apart.counts
	s := state{phase: d.Phase, reason: d.Reason, counts: c}
	if d.Reason == lifecycle.Expired {
		s.cut = new(held.Blocking())
	}
	flight := v.flight(left, o, now) // before the release lets go of what the hooks have said
	v.become(s)
	v.sayDraining(d, o.Deadline, held, left, now)
	v.sayUnjudged(d, now)
	if d.Phase != lifecycle.Released {
		return
	}
	v.tally.released(d.Reason, waited)
	parted := v.parted(left)
	v.tally.parted(parted)
	switch d.Reason {
	case lifecycle.Drained:
		switch {
		case v.endedBy != nil:
			v.tally.parted(*v.endedBy)
			v.events.quiet(pod, held, *v.endedBy, v.apart.left, waited)
		case v.unheard:
			v.events.unheard(pod, waited)
		case v.settingsNow().Until.Only(lifecycle.UntilWithdrawn):
			v.events.withdrawn(pod, c, waited)
		default:
			v.events.drained(pod, held, parted, v.apart.left, waited, v.saving.saved(now))
		}
	case lifecycle.Expired:
		held.Active = min(held.Active+flight.silent, held.Blocking())
		v.tally.cut(held)
		v.events.expired(pod, held, flight, parted, left, waited, v.begun, v.unknownBecause(), v.saving.saved(now))
	case lifecycle.ReleasedByUser:
		by, why := v.releasedBy()
		v.events.released(pod, held, parted, left, waited, v.begun, by, why)
	default:
	}
}

// untold is of how many sessions that hold for their requests nobody could tell whether one
// was in flight, or of how many at the least.
type untold struct {
	sessions int
	least    bool
}

// untold takes the hooks' word, which names the classes of the wide rule, and not those of
// very many clients: by the strict one there may be more of which nobody can tell.
func (v *vigil) untold(now time.Time) (u untold) {
	of := v.judges.classes(now)
	if of == nil {
		return untold{}
	}
	unknown := func(peers lifecycle.PeerSet, sure func(class string) bool) {
		for p := range peers {
			class := classOf(p, of)
			if class == requests.Unknown.String() {
				u.sessions++
			} else if !sure(class) {
				u.least = true
			}
		}
	}
	unknown(v.apart.wide, func(class string) bool { return class != "" })
	unknown(v.apart.strict, func(string) bool { return false })
	u.sessions = min(u.sessions, v.apart.requests)
	return u
}

// measure counts what came late, and from when on nothing holds the pod.
func (v *vigil) measure(d lifecycle.Decision, c conntrack.Counts, now time.Time) {
	v.tally.late.Add(float64(v.freedom.arrived(c, v.routed)))
	v.freedom.saw(c.Known, v.apart.all(), now)
	v.freedom.decided(d)
	if d.Reason == lifecycle.Drained {
		if due, ok := v.freedom.due(v.withdrawnAt, now); ok {
			v.free.at(due)
		}
	}
}

// unknownFor is how long sessions may be unknown before people are told.
const unknownFor = 5 * time.Second

// sayDraining says once for a drain that the pod is held, as soon as it is: by how
// many sessions, or that they cannot be read. That it settled and then was held
// again is not said, however often: the last Event tells how many were new.
func (v *vigil) sayDraining(d lifecycle.Decision, deadline time.Time, c conntrack.Counts, left []conntrack.Session, now time.Time) {
	if v.said || d.Phase != lifecycle.Draining {
		return
	}
	switch {
	case c.Known && c.Blocking() > 0:
		v.events.draining(v.current(), c, v.apart.requests, left, deadline.Sub(now), v.begun)
	case !c.Known && v.unknownBecause() != nil && now.Sub(v.begun) > unknownFor:
		v.events.unknown(v.current(), deadline.Sub(now), v.unknownBecause())
	default:
		return
	}
	v.said = true
}

// sayUnjudged says once that a pod which is to be held for its requests only is held for
// its sessions.
func (v *vigil) sayUnjudged(d lifecycle.Decision, now time.Time) {
	why := v.apart.unjudged
	since(&v.unjudgedSince, why != "", now) // one look that took too long is no reason
	if v.excused || why == "" || d.Phase != lifecycle.Draining || now.Sub(v.unjudgedSince) < judgePatience ||
		v.apart.sessions == 0 || !v.settingsNow().Until.Any(lifecycle.Until.OfRequests) {
		return
	}
	v.excused = true
	v.events.unjudged(v.current(), why)
}

// judgePatience is how long a hook that can tell requests may take to come, where
// another one of the pod is older.
const judgePatience = reporterPatience

// unknownBecause says what kept the sessions unknown, or nothing.
func (v *vigil) unknownBecause() error {
	if v.watch != nil {
		return v.watch.Err()
	}
	return v.fault
}

// tellUndeclared puts annotations that name a port nobody knows of on the list of what has to
// be told, as soon as the slices have said which they list.
func (v *vigil) tellUndeclared(now time.Time) {
	if !v.route.known && now.Sub(v.begun) < routesPatience {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range undeclared(v.pod, v.settings, v.listed) {
		v.tell(m)
	}
}

// tellFaults tells people what is wrong with the pod, each once.
func (v *vigil) tellFaults(now time.Time) {
	pod := v.current()
	v.tellUndeclared(now)
	for _, m := range v.toTell() {
		v.events.malformed(pod, m)
	}
	if names := unhooked(pod); len(names) > 0 && !v.warned {
		v.events.partial(pod, names)
	}
	v.warned = true
}
