package lifecycle

import (
	"testing"
	"time"
)

// FuzzDecide holds every decision against what must be true of all of them.
func FuzzDecide(f *testing.F) {
	const second = int64(time.Second)
	f.Add(second, 100*second, int64(0), 5*second, 60*second, int64(0), uint8(0), uint8(0), uint8(0), uint8(1))
	f.Add(100*second, 100*second, 99*second, 5*second, 60*second, 15*second, uint8(1), uint8(0), uint8(0), uint8(1))
	f.Add(7*second, 100*second, 6*second, 5*second, 60*second, int64(0), uint8(0), uint8(4), uint8(2), uint8(3))
	f.Add(-second, -2*second, int64(0), -second, -second, -second, uint8(0), uint8(0), uint8(0), uint8(7))
	f.Fuzz(func(t *testing.T, now, deadline, lastNew, settle, settleMax, minDelay int64, blocking, requests, opening, flags uint8) {
		// Moments within ten years of the start: what a clock can say.
		const span = int64(10 * 365 * 24 * time.Hour)
		moment := func(ns int64) time.Time { return start.Add(time.Duration(ns % span)) }
		length := func(ns int64) time.Duration { return time.Duration(ns % span) }
		o := Observation{
			WithdrawnAt:    start,
			Deadline:       moment(deadline),
			Policy:         Policy{Settle: length(settle), SettleMax: length(settleMax), MinDelay: length(minDelay)},
			Known:          flags&1 != 0,
			Blocking:       int(blocking),
			Requests:       int(requests),
			Opening:        int(opening),
			LastNew:        moment(lastNew),
			SocketsPending: flags&2 != 0,
			Cancelled:      flags&4 != 0,
			Routed:         flags&8 != 0,
			Serving:        flags&16 != 0,
			ConfirmBy:      moment(minDelay),
			ReleasedByUser: flags&64 != 0,
		}
		if flags&32 != 0 {
			o.WithdrawBy = moment(settle)
		}
		if flags&128 != 0 {
			o.Policy.Until = UntilWithdrawn
		}
		at := moment(now)
		d := Decide(o, at)

		if d != Decide(o, at) {
			t.Error("the same observation at the same moment, another decision")
		}
		if released := d.Phase == Released; released != (d.Reason != "") || released != d.Next.IsZero() {
			t.Errorf("%+v: a reason belongs to Released and nothing else, a next look to all but Released", d)
		}
		if d.Phase != Released && (!d.Next.After(at) || d.Next.After(o.Deadline)) {
			t.Errorf("next look %s is not after %s and by %s", d.Next, at, o.Deadline)
		}
		if !at.Before(o.Deadline) && d.Phase != Released {
			t.Errorf("%s past the deadline", d.Phase)
		}
		if d.Reason == Drained && o.Policy.Until == UntilSessions && (o.Blocking > 0 || o.Requests > 0 || !o.Known || o.SocketsPending) {
			t.Errorf("drained without proof: %+v", o)
		}
		if d.WhenQuiet && (d.Phase != Draining || o.Blocking > 0 || o.Requests == 0 || !o.Known || o.Policy.Until == UntilWithdrawn) {
			t.Errorf("left to the requests while something else holds: %+v", o)
		}
		if d.Reason == Expired && at.Before(o.Deadline) {
			t.Errorf("expired %s before the deadline", o.Deadline.Sub(at))
		}
		if o.Cancelled != (d.Reason == Cancelled) {
			t.Errorf("cancelled %t, reason %q", o.Cancelled, d.Reason)
		}
		if released := o.ReleasedByUser && !o.Cancelled; released != (d.Reason == ReleasedByUser) {
			t.Errorf("released by a user %t, reason %q", o.ReleasedByUser, d.Reason)
		}
		if d.Phase == Withdrawing && !o.Routed {
			t.Errorf("withdrawing a pod that is not routed: %+v", o)
		}
		if o.Serving && !o.Cancelled && !o.ReleasedByUser && d.Phase != Serving && d.Reason != NotTerminating {
			t.Errorf("%s of a pod that is not known to be terminating", d.Phase)
		}
		if o.Policy.Until == UntilWithdrawn && d.Phase == Draining {
			t.Error("draining a pod whose sessions do not hold it")
		}
		if o.Policy.Until == UntilWithdrawn && d.Reason == Drained && o.Routed && (o.WithdrawBy.IsZero() || at.Before(o.WithdrawBy)) {
			t.Errorf("released a pod that is sent new traffic before its time: %+v", o)
		}
		if d.Phase == Settling && o.Policy.Until == UntilSessions && (!o.Known || o.Blocking > 0) {
			t.Errorf("settling while something blocks: %+v", o)
		}
	})
}
