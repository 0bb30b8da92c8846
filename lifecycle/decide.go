package lifecycle

import "time"

// DefaultSettleMax is how long after the withdrawal new sessions can restart
// the quiet time.
const DefaultSettleMax = 60 * time.Second

// Policy is how long a release waits after nothing blocks any more. The zero
// Policy releases at once.
type Policy struct {
	// Until is UntilWithdrawn where no session holds. For anything else those that
	// hold are counted in the Observation.
	Until Until
	// Settle is the quiet time: no new session for this long since the
	// withdrawal. It runs in parallel with draining.
	Settle time.Duration
	// SettleMax ends the quiet time this long after the withdrawal, whatever
	// still begins. From then on only sessions hold, handshakes do not.
	SettleMax time.Duration
	// MinDelay is the least time from the withdrawal to the release.
	MinDelay time.Duration
}

// Observation is all that a decision rests on, as seen at one moment.
type Observation struct {
	// Serving is true while nothing says that the pod is terminating. If that is
	// still so at ConfirmBy, there is nothing to wait for.
	Serving   bool
	ConfirmBy time.Time
	// Routed is true while new traffic is sent to the pod, or while it is unknown
	// whether it is.
	Routed bool
	// WithdrawBy ends the withdrawal although the pod is still routed. Zero means
	// that only the deadline does.
	WithdrawBy time.Time
	// WithdrawnAt is when new traffic stopped being sent. It means nothing while
	// Routed.
	WithdrawnAt time.Time
	// Deadline is when the drain is released in any case.
	Deadline time.Time
	Policy   Policy
	// Known is false while the figures below may be out of date. Nothing is then
	// concluded from them.
	Known bool
	// Blocking counts the sessions that have to end first: open and lost ones.
	Blocking int
	// Requests counts those that hold only while a request is in flight on them. Who
	// can see that ends the drain; see Decision.WhenQuiet.
	Requests int
	// Opening counts handshakes that have only just begun.
	Opening int
	// LastNew is when the latest session began; zero if none did.
	LastNew time.Time
	// SocketsPending is true where the server's own sockets have a say and have
	// not confirmed the figures yet.
	SocketsPending bool
	// ReleasedByUser is true as soon as a person has ended the drain.
	ReleasedByUser bool
	// Cancelled is true as soon as the one who waited gave up.
	Cancelled bool
}

// Decision is what an Observation means at one moment.
type Decision struct {
	Phase Phase
	// Reason is empty unless the phase is Released.
	Reason Reason
	// WhenQuiet is true while nothing holds but sessions that are waited for between
	// two requests: whoever sees the pod at a moment without a request may let it go.
	WhenQuiet bool
	// Next is when to decide again at the latest, if nothing is observed before
	// that: always in the future and never after the deadline. It is zero when
	// released.
	Next time.Time
}

// Decide says where a drain stands at the moment now. It is a pure function and
// safe for concurrent use.
//
// It fails closed until the deadline and open at it: something unknown blocks
// like a session, and the deadline releases always, as Expired unless zero is
// proven at that very moment, or, until withdrawn, no new traffic was sent. It never
// releases a pod with sessions that hold for their requests: who sees these does.
func Decide(o Observation, now time.Time) Decision {
	past := !now.Before(o.Deadline)
	withdrawn := o.withdrawn(now)
	o.WithdrawnAt = o.withdrawnAt()
	free := o.freeAt()
	switch {
	case o.Cancelled:
		return Decision{Phase: Released, Reason: Cancelled}
	case o.ReleasedByUser:
		return Decision{Phase: Released, Reason: ReleasedByUser}
	case o.Serving && (past || !now.Before(o.ConfirmBy)):
		return Decision{Phase: Released, Reason: NotTerminating}
	case o.Serving:
		return Decision{Phase: Serving, Next: earlier(o.ConfirmBy, o.Deadline)}
	case !withdrawn && !past:
		return Decision{Phase: Withdrawing, Next: o.withdrawalEnds()}
	case past && !withdrawn && o.Policy.Until == UntilWithdrawn:
		return Decision{Phase: Released, Reason: Expired}
	case !o.proven() && past:
		return Decision{Phase: Released, Reason: Expired}
	case !o.proven():
		return Decision{Phase: Draining, Next: o.Deadline}
	case past && o.Opening > 0 && now.Before(o.settledAt()):
		return Decision{Phase: Released, Reason: Expired}
	case o.held() && past:
		return Decision{Phase: Released, Reason: Expired}
	case o.held() && !now.Before(free):
		return Decision{Phase: Draining, WhenQuiet: true, Next: o.Deadline}
	case o.held():
		return Decision{Phase: Draining, Next: earlier(free, o.Deadline)}
	case past || !now.Before(free):
		return Decision{Phase: Released, Reason: Drained}
	}
	return Decision{Phase: Settling, Next: earlier(free, o.Deadline)}
}

// proven reports that no session blocks. Where the application ends them itself
// none does, and it does not matter whether they are known. Whoever watches for a
// moment without a request has the sockets in sight.
func (o Observation) proven() bool {
	return o.Policy.Until == UntilWithdrawn || (o.Known && o.Blocking == 0 && (!o.SocketsPending || o.Requests > 0))
}

// held reports that sessions hold for their requests only.
func (o Observation) held() bool { return o.Policy.Until != UntilWithdrawn && o.Requests > 0 }

// withdrawn reports that the drain has passed the withdrawal: no new traffic is
// sent, or the time for that is over.
func (o Observation) withdrawn(now time.Time) bool {
	return !o.Routed || (!o.WithdrawBy.IsZero() && !now.Before(o.WithdrawBy))
}

// withdrawnAt is the moment that the quiet time runs from. A withdrawal that
// came too late is taken for one that came at the end of its time.
func (o Observation) withdrawnAt() time.Time {
	switch {
	case o.WithdrawBy.IsZero():
		return o.WithdrawnAt
	case o.Routed:
		return o.WithdrawBy
	default:
		return earlier(o.WithdrawnAt, o.WithdrawBy)
	}
}

// withdrawalEnds is when the withdrawal ends at the latest.
func (o Observation) withdrawalEnds() time.Time {
	if o.WithdrawBy.IsZero() {
		return o.Deadline
	}
	return earlier(o.WithdrawBy, o.Deadline)
}

// settledAt is the end of the time in which new sessions hold the release.
func (o Observation) settledAt() time.Time {
	return o.WithdrawnAt.Add(o.Policy.SettleMax)
}

// freeAt is when a drain without sessions is released if nothing changes.
func (o Observation) freeAt() time.Time {
	quiet := later(o.WithdrawnAt, o.LastNew).Add(o.Policy.Settle)
	if o.Opening > 0 {
		quiet = o.settledAt()
	}
	return later(earlier(quiet, o.settledAt()), o.WithdrawnAt.Add(o.Policy.MinDelay))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
