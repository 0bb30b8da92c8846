package requests

import "time"

// Standing is how a connection counts where a moment without a request is waited for.
type Standing uint8

// The standings. The zero value holds, whatever the connection does.
const (
	// Unlisted: nobody has said what it is.
	Unlisted Standing = iota
	// ByStrict and ByWide: it holds while a request is in flight, by that rule.
	ByStrict
	ByWide
	// Ignored: it does not hold.
	Ignored
)

// Counted is one connection at one look.
type Counted struct {
	Standing Standing
	Verdict  Verdict
}

// Permission lets a pod end at a moment without a request. The zero Permission waits
// for one for ever, and for each connection of which nobody can tell.
type Permission struct {
	// Quiet is after how long a silence a connection holds no more of which nobody can
	// tell. 0 is never.
	Quiet time.Duration
	// BusyAfter is after how long the moment with the fewest requests will do. 0 is
	// never.
	BusyAfter time.Duration
}

const (
	// young is how long a request has gone on at the most that can be cut after
	// BusyAfter. What holds otherwise for as long begins BusyAfter anew: a probe, which
	// is over by then, does not.
	young = time.Second
	// relearnAfter is the part of BusyAfter after which a bar that was not reached is
	// replaced by what there was meanwhile.
	relearnAfter = 4
	// Recent is how long ago a look began at the most that lets go alone, and stale how
	// long ago one that agrees with the look before: where there is little CPU time, much
	// can have happened since.
	Recent = 250 * time.Millisecond
	stale  = 2 * time.Second
)

// Outcome is what one look comes to.
type Outcome struct {
	// Go says that the pod may end now, and Again that the look before has shown it, too.
	Go, Again bool
	// Cut are the requests in flight that this cuts, Untold the ones of them that are
	// perhaps none, since nobody can tell; both are 0 unless Go.
	Cut, Untold int
	// Holding are the connections that hold now, those without a socket among them,
	// and Unlisted those of them that nobody has said anything of.
	Holding, Unlisted int
}

// Release decides at which look a pod may end. It has no clock and is for one
// goroutine. The zero Release is ready for use.
type Release struct {
	// busySince is since when nothing holds for long but young requests, otherSince
	// since when something else does; zero where that is not so.
	busySince, otherSince time.Time
	// bar is the least of them at any look since then; once BusyAfter is over, recent
	// is the least since relearned.
	bar, recent int
	relearned   time.Time
	// late is set where the latest look would have let go, but had begun long ago.
	late bool
}

// Look takes in one look, which began at one time and is judged now. permission is nil
// where there is none, missing counts the connections that hold without a socket to be
// seen. It has to be one whole look, and looks have to come in the order of their time.
//
// A look that is not Recent by now lets go only where the one before was late, and has
// shown the same.
//
// It never lets go without a permission, while an unlisted connection is there or one
// is missing, nor while a request is in flight, as its rule sees it: but for young
// requests on connections that alternate, after BusyAfter.
func (r *Release) Look(at, now time.Time, permission *Permission, all []Counted, missing int) Outcome {
	o := r.let(at, permission, all, missing)
	o.Again = o.Go && r.late
	age := now.Sub(at)
	r.late = o.Go && age > Recent && (!o.Again || age > stale)
	if r.late {
		o.Go, o.Again, o.Cut, o.Untold = false, false, 0, 0
	}
	return o
}

// Missed takes in that there was a look of which nothing is known, or that what it was
// seen under may no longer be so: a late one before it counts no more.
func (r *Release) Missed() { r.late = false }

// let says what a look comes to, however old it is.
func (r *Release) let(at time.Time, permission *Permission, all []Counted, missing int) Outcome {
	o := Outcome{Holding: missing}
	other := missing > 0 // than young requests
	untold := 0
	for i := range all {
		c := &all[i]
		if permission != nil && !c.holds(permission.Quiet) {
			continue
		}
		o.Holding++
		if c.Standing == Unlisted {
			o.Unlisted++
		}
		if class, by := c.class(); by && class == Unknown {
			untold++
		}
		other = other || !c.young()
	}
	switch {
	case permission == nil:
		*r = Release{}
	case o.Holding == 0:
		o.Go = true
	case permission.BusyAfter <= 0:
	case other:
		r.other(at)
	case r.busy(at, permission.BusyAfter, o.Holding):
		o.Go, o.Cut, o.Untold = true, o.Holding, untold
	}
	return o
}

// other takes in a look at which something holds but young requests.
func (r *Release) other(at time.Time) {
	if r.otherSince.IsZero() {
		r.otherSince = at
	}
	if at.Sub(r.otherSince) >= young {
		*r = Release{otherSince: r.otherSince}
	}
}

// busy takes in a look at which so many young requests hold and nothing else, and
// says whether it has to do.
func (r *Release) busy(at time.Time, after time.Duration, holding int) bool {
	r.otherSince = time.Time{}
	if r.busySince.IsZero() {
		*r = Release{busySince: at, bar: holding}
	}
	since := at.Sub(r.busySince)
	switch {
	case since < after:
		r.bar = min(r.bar, holding)
		return false
	case holding <= r.bar:
		return true
	case r.relearned.IsZero():
		r.relearned, r.recent = at, holding
	}
	r.recent = min(r.recent, holding)
	if at.Sub(r.relearned) >= after/relearnAfter {
		// It was quieter once than it is now, which nobody can wait for.
		r.bar, r.relearned = r.recent, time.Time{}
	}
	return false
}

// holds says whether the connection holds the pod that may end otherwise.
func (c *Counted) holds(quiet time.Duration) bool {
	class, by := c.class()
	if !by {
		return c.Standing != Ignored
	}
	silent := class == Unknown && quiet > 0 && c.Verdict.Silent >= quiet
	return class != Between && !silent
}

// class is the one by its rule; by is false where it stands under none.
func (c *Counted) class() (_ Class, by bool) {
	switch c.Standing {
	case ByStrict:
		return c.Verdict.Strict, true
	case ByWide:
		return c.Verdict.Wide, true
	default:
		return Unknown, false
	}
}

// young says whether nothing but a young request holds it.
func (c *Counted) young() bool {
	return c.Standing != Unlisted && c.Verdict.Alternates && c.Verdict.Request < young
}
