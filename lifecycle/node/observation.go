package node

import (
	"context"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// counts are the current ones, unknown without a watch.
func (v *vigil) counts() conntrack.Counts {
	if v.watch == nil {
		return conntrack.Counts{}
	}
	return v.watch.Counts()
}

// confirmMargin is how long the kernel may take to confirm a zero at the deadline.
const confirmMargin = 100 * time.Millisecond

// ask returns counts that rest on nothing older than the call, or unknown ones.
// A zero of another kind releases nobody. It blocks until the kernel has answered,
// but hardly beyond the deadline.
func (v *vigil) ask(ctx context.Context, deadline time.Time) conntrack.Counts {
	ctx, cancel := context.WithDeadline(ctx, later(deadline, time.Now().Add(confirmMargin)))
	defer cancel()
	c, err := v.watch.Confirm(ctx)
	if err != nil {
		v.log.Warn("that no session is left cannot be confirmed", "err", err)
		return conntrack.Counts{}
	}
	return c
}

// see takes in the counts, and returns all that a decision rests on. What holds the pod
// is told apart anew if that is asked for.
func (v *vigil) see(c conntrack.Counts, now time.Time, anew bool) lifecycle.Observation {
	v.hold(c, now, anew)
	v.pending = v.consult(c, now)
	return v.observe(c, now)
}

// unconfirmed says whether a decision that lets go has to rest on what the kernel says
// now: a release, and the first of several permissions.
func (v *vigil) unconfirmed(d lifecycle.Decision, o lifecycle.Observation) bool {
	if d.WhenQuiet {
		before, _ := v.permission()
		return before == nil
	}
	return d.Reason == lifecycle.Drained && o.Policy.Until == lifecycle.UntilSessions
}

func (v *vigil) observe(c conntrack.Counts, now time.Time) lifecycle.Observation {
	v.mu.Lock()
	defer v.mu.Unlock()
	o := lifecycle.Observation{
		Serving: v.serving, ConfirmBy: v.confirmBy,
		Routed: v.routed, WithdrawnAt: v.withdrawnAt,
		Deadline: v.deadline,
		Policy:   v.settings.Over(v.policy),
		Known:    c.Known, Blocking: v.apart.sessions, Requests: v.apart.requests,
		Opening: c.Opening, LastNew: c.LastNew,
		SocketsPending: v.pending,
		ReleasedByUser: v.by != "",
		Cancelled:      v.cancelled || v.gone,
	}
	if !v.confirmed {
		o.Deadline = later(now, v.confirmBy)
		return o
	}
	o.WithdrawBy = v.first.Add(lifecycle.WithdrawTimeout(v.deadline.Sub(v.first)))
	if v.settings.MinDelay == nil {
		o.Policy.MinDelay = max(o.Policy.MinDelay, v.delays.usual())
	}
	// Nothing can be on its way to a pod that nobody lists, that declares no port
	// and that never had a session.
	if v.settings.Settle == nil && v.route.known && !v.route.listed && len(declared(v.pod)) == 0 && c.Known && c.Peak == 0 {
		o.Policy.Settle = 0
	}
	return o
}
