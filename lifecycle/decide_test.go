package lifecycle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// start is a moment that all tables count seconds from.
var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time {
	return start.Add(time.Duration(seconds * float64(time.Second)))
}

// seen is an observation withdrawn at second 0 with the deadline at second 100,
// known and without a session, changed by each of the given functions.
func seen(changes ...func(*Observation)) Observation {
	o := Observation{
		WithdrawnAt: at(0),
		Deadline:    at(100),
		Policy:      Policy{SettleMax: DefaultSettleMax},
		Known:       true,
	}
	for _, change := range changes {
		change(&o)
	}
	return o
}

func blocking(n int) func(*Observation)    { return func(o *Observation) { o.Blocking = n } }
func opening(n int) func(*Observation)     { return func(o *Observation) { o.Opening = n } }
func lastNew(s float64) func(*Observation) { return func(o *Observation) { o.LastNew = at(s) } }
func settle(s float64) func(*Observation) {
	return func(o *Observation) { o.Policy.Settle = seconds(s) }
}
func settleMax(s float64) func(*Observation) {
	return func(o *Observation) { o.Policy.SettleMax = seconds(s) }
}
func minDelay(s float64) func(*Observation) {
	return func(o *Observation) { o.Policy.MinDelay = seconds(s) }
}
func requests(n int) func(*Observation) { return func(o *Observation) { o.Requests = n } }
func unknown(o *Observation)            { o.Known = false }
func socketsPending(o *Observation)     { o.SocketsPending = true }
func cancelled(o *Observation)          { o.Cancelled = true }
func untilWithdrawn(o *Observation)     { o.Policy.Until = UntilWithdrawn }
func byUser(o *Observation)             { o.ReleasedByUser = true }

func routed(by float64) func(*Observation) {
	return func(o *Observation) { o.Routed, o.WithdrawnAt, o.WithdrawBy = true, time.Time{}, at(by) }
}
func withdrawn(s, by float64) func(*Observation) {
	return func(o *Observation) { o.WithdrawnAt, o.WithdrawBy = at(s), at(by) }
}
func serving(by float64) func(*Observation) {
	return func(o *Observation) { o.Serving, o.ConfirmBy = true, at(by) }
}
func deadline(s float64) func(*Observation) { return func(o *Observation) { o.Deadline = at(s) } }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func TestDecide(t *testing.T) {
	draining := Decision{Phase: Draining, Next: at(100)}
	whenQuiet := Decision{Phase: Draining, WhenQuiet: true, Next: at(100)}
	settling := func(next float64) Decision { return Decision{Phase: Settling, Next: at(next)} }
	withdrawing := func(next float64) Decision { return Decision{Phase: Withdrawing, Next: at(next)} }
	released := func(r Reason) Decision { return Decision{Phase: Released, Reason: r} }

	for _, tc := range []struct {
		name string
		o    Observation
		now  float64
		want Decision
	}{
		{"nothing there", seen(), 0, released(Drained)},
		{"a session", seen(blocking(1)), 1, draining},
		{"a session just before the deadline", seen(blocking(1)), 99.999, draining},
		{"a session at the deadline", seen(blocking(1)), 100, released(Expired)},
		{"a session after the deadline", seen(blocking(1)), 200, released(Expired)},
		{"unknown is not zero", seen(unknown), 1, draining},
		{"unknown at the deadline", seen(unknown), 100, released(Expired)},
		{"zero at the deadline", seen(), 100, released(Drained)},

		{"settle from the withdrawal", seen(settle(5)), 1, settling(5)},
		{"settle passed", seen(settle(5)), 5, released(Drained)},
		{"settle runs while draining", seen(settle(5), blocking(1)), 7, draining},
		{"settle passed while draining", seen(settle(5)), 7.001, released(Drained)},
		{"settle from the latest new session", seen(settle(5), lastNew(6)), 7, settling(11)},
		{"a session older than the withdrawal", seen(settle(5), lastNew(-3)), 1, settling(5)},
		{"a new session leads back to draining", seen(settle(5), lastNew(2), blocking(1)), 3, draining},
		{"settle never after the deadline", seen(settle(5), settleMax(200), lastNew(98)), 99, settling(100)},
		{"zero at the deadline in the quiet time", seen(settle(5), settleMax(200), lastNew(98)), 100, released(Drained)},
		{"settle-max cuts the quiet time", seen(settle(5), lastNew(58)), 59, settling(60)},
		{"after settle-max nothing new holds", seen(settle(5), lastNew(64)), 65, released(Drained)},
		{"after settle-max a session holds", seen(settle(5), lastNew(64), blocking(1)), 65, draining},
		{"without settle-max no quiet time", seen(settle(5), settleMax(0)), 1, released(Drained)},

		{"a handshake holds", seen(opening(1)), 1, settling(60)},
		{"a handshake does not outlast settle-max", seen(opening(1)), 60, released(Drained)},
		{"a handshake at the deadline", seen(opening(1), settleMax(200)), 100, released(Expired)},
		{"a handshake at the deadline after settle-max", seen(opening(1)), 100, released(Drained)},

		{"min-delay", seen(minDelay(15)), 1, settling(15)},
		{"min-delay is longer than settle", seen(minDelay(15), settle(5)), 7, settling(15)},
		{"min-delay is shorter than settle", seen(minDelay(3), settle(5)), 1, settling(5)},
		{"min-delay is not cut by settle-max", seen(minDelay(80)), 70, settling(80)},
		{"min-delay is cut by the deadline", seen(minDelay(180)), 70, settling(100)},
		{"min-delay passed", seen(minDelay(15)), 15, released(Drained)},

		{"sockets have the last word", seen(socketsPending), 1, draining},
		{"sockets pending at the deadline", seen(socketsPending), 100, released(Expired)},

		{"not known to be terminating", seen(serving(2), routed(30), blocking(1)), 1, Decision{Phase: Serving, Next: at(2)}},
		{"not terminating", seen(serving(2), routed(30), blocking(1)), 2, released(NotTerminating)},
		{"not terminating at a deadline before that", seen(serving(2), deadline(1)), 1, released(NotTerminating)},
		{"not terminating and cancelled", seen(serving(2), cancelled), 2, released(Cancelled)},

		{"routed", seen(routed(30)), 1, withdrawing(30)},
		{"routed with a session", seen(routed(30), blocking(1)), 1, withdrawing(30)},
		{"routed, and nothing is known", seen(routed(30), unknown), 1, withdrawing(30)},
		{"routed, and the deadline comes first", seen(routed(30), deadline(20)), 1, withdrawing(20)},
		{"routed at the deadline, with a session", seen(routed(30), deadline(20), blocking(1)), 20, released(Expired)},
		{"routed at the deadline, without one", seen(routed(30), deadline(20)), 20, released(Drained)},
		{"still routed, and the time for it is over", seen(routed(30), blocking(1)), 30, draining},
		{"settle from the end of that time", seen(routed(30), settle(5)), 31, settling(35)},
		{"settle passed after that time", seen(routed(30), settle(5)), 35, released(Drained)},
		{"withdrawn too late", seen(withdrawn(40, 30), settle(5)), 41, released(Drained)},
		{"settle from a withdrawal in time", seen(withdrawn(10, 30), settle(5)), 11, settling(15)},
		{"min-delay from the withdrawal", seen(withdrawn(10, 30), minDelay(15)), 11, settling(25)},
		{"settle-max from the withdrawal", seen(withdrawn(10, 30), settle(5), lastNew(68)), 69, settling(70)},
		{"a session newer than the start and older than the withdrawal", seen(withdrawn(10, 30), settle(5), lastNew(6)), 11, settling(15)},

		{"cancelled", seen(cancelled, blocking(3)), 1, released(Cancelled)},
		{"cancelled while unknown", seen(cancelled, unknown), 1, released(Cancelled)},
		{"cancelled with nothing there", seen(cancelled), 1, released(Cancelled)},
		{"requests", seen(requests(3)), 1, whenQuiet},
		{"requests, the pod's sockets are looked at by who judges them", seen(requests(3), socketsPending), 1, whenQuiet},
		{"requests beside a session", seen(requests(3), blocking(1)), 1, draining},
		{"requests, not known", seen(requests(3), unknown), 1, draining},
		{"requests, still routed", seen(requests(3), routed(30)), 1, withdrawing(30)},
		{"requests, settle", seen(requests(3), settle(5)), 1, Decision{Phase: Draining, Next: at(5)}},
		{"requests, settle from a new session", seen(requests(3), settle(5), lastNew(4)), 6, Decision{Phase: Draining, Next: at(9)}},
		{"requests, settle passed", seen(requests(3), settle(5)), 5, whenQuiet},
		{"requests, a connection being made", seen(requests(3), opening(1)), 5, Decision{Phase: Draining, Next: at(60)}},
		{"requests, min-delay", seen(requests(3), minDelay(15)), 6, Decision{Phase: Draining, Next: at(15)}},
		{"requests at the deadline", seen(requests(3)), 100, released(Expired)},
		{"requests, released by a user", seen(requests(3), byUser), 1, released(ReleasedByUser)},
		{"requests until withdrawn", seen(requests(3), untilWithdrawn), 1, released(Drained)},

		{"until withdrawn, sessions do not hold", seen(untilWithdrawn, blocking(3)), 1, released(Drained)},
		{"until withdrawn, unknown does not hold", seen(untilWithdrawn, unknown, socketsPending), 1, released(Drained)},
		{"until withdrawn, still routed", seen(untilWithdrawn, routed(30)), 1, withdrawing(30)},
		{"until withdrawn, the time for it is over", seen(untilWithdrawn, routed(30), settle(5), blocking(3)), 31, settling(35)},
		{"until withdrawn, settle", seen(untilWithdrawn, settle(5), blocking(3)), 1, settling(5)},
		{"until withdrawn, settle from a new session", seen(untilWithdrawn, settle(5), lastNew(4), blocking(3)), 5, settling(9)},
		{"until withdrawn, settle passed", seen(untilWithdrawn, settle(5), blocking(3)), 5, released(Drained)},
		{"until withdrawn, min-delay", seen(untilWithdrawn, settle(5), minDelay(15), blocking(3)), 6, settling(15)},
		{"until withdrawn, a deadline in the quiet time", seen(untilWithdrawn, settle(5), deadline(3), blocking(3)), 3, released(Drained)},
		{"until withdrawn, routed at the deadline", seen(untilWithdrawn, routed(30), deadline(20)), 20, released(Expired)},
		{"until withdrawn, not terminating", seen(untilWithdrawn, serving(2)), 2, released(NotTerminating)},

		{"released by a user", seen(byUser, blocking(3)), 1, released(ReleasedByUser)},
		{"released by a user while routed and unknown", seen(byUser, routed(30), unknown), 1, released(ReleasedByUser)},
		{"released by a user before it is known whether it terminates", seen(byUser, serving(2)), 1, released(ReleasedByUser)},
		{"released by a user at the deadline", seen(byUser, blocking(3)), 100, released(ReleasedByUser)},
		{"released by a user and cancelled", seen(byUser, cancelled), 1, released(Cancelled)},
		{"no deadline is a deadline that has passed", Observation{Known: true, Blocking: 1}, 1, released(Expired)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Decide(tc.o, at(tc.now))); diff != "" {
				t.Errorf("Decide (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDecideReleasesByItsOwnTimer follows only the Next of each decision, as a
// caller does to whom nothing else happens.
func TestDecideReleasesByItsOwnTimer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		o      Observation
		want   []float64
		reason Reason
	}{
		{"settle", seen(settle(5)), []float64{5}, Drained},
		{"settle and min-delay", seen(settle(5), minDelay(15)), []float64{15}, Drained},
		{"handshake", seen(opening(1)), []float64{60}, Drained},
		{"session", seen(blocking(1)), []float64{100}, Expired},
		{"never withdrawn", seen(routed(30), settle(5)), []float64{30, 35}, Drained},
		{"never withdrawn, with a session", seen(routed(30), blocking(1)), []float64{30, 100}, Expired},
		{"not terminating", seen(serving(2)), []float64{2}, NotTerminating},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := at(0)
			var looks []float64
			d := Decide(tc.o, now)
			for d.Phase != Released {
				now = d.Next
				looks = append(looks, now.Sub(start).Seconds())
				d = Decide(tc.o, now)
			}
			if diff := cmp.Diff(tc.want, looks); diff != "" {
				t.Errorf("looks (-want +got):\n%s", diff)
			}
			if d.Reason != tc.reason {
				t.Errorf("reason %s, want %s", d.Reason, tc.reason)
			}
		})
	}
}

func TestPhaseString(t *testing.T) {
	var got []string
	for _, p := range []Phase{Serving, Withdrawing, Draining, Settling, Released, 9} {
		got = append(got, p.String())
	}
	if diff := cmp.Diff([]string{"serving", "withdrawing", "draining", "settling", "released", "phase 9"}, got); diff != "" {
		t.Errorf("words (-want +got):\n%s", diff)
	}
}
