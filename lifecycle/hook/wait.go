package hook

import (
	"context"
	"net/netip"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

const (
	// pollWait is how long the helper holds a request, if it does not ask for a look
	// at the sockets before.
	pollWait = 5 * time.Second
	// retryEvery is how often a helper that did not answer is tried again.
	retryEvery = time.Second
	// minPoll keeps a helper that holds nothing from being asked without a pause.
	minPoll = 50 * time.Millisecond
	// overdue is how long after its own deadline a helper is still listened to.
	overdue = 500 * time.Millisecond
)

// Slept is the Reason of a wait that nobody could tell anything, on the node's own
// network: a plain sleep.
const Slept lifecycle.Reason = "Slept"

// Result says how a wait ended.
type Result struct {
	// Reason is the helper's; Drained, Expired or Slept where the fallback decided,
	// and Cancelled when the context ended.
	Reason lifecycle.Reason
	// Helper is false where the fallback decided.
	Helper bool
	// Waited is how long it took.
	Waited time.Duration
}

// Wait blocks until the pod may end: the helper says so; or, while no helper
// answers, FallbackSleep has passed and the pod's own sockets have no session, or
// the deadline has come that a helper last told or Grace implies; or ctx ends. It
// does not fail: whatever is wrong is logged and leads to the fallback. It needs
// no rights.
//
// On the node's own network its sockets are everybody's: without a helper and
// without Ports it blocks for FallbackSleep.
func Wait(ctx context.Context, c Config) Result {
	start := time.Now()
	c.Defaults()
	w := &waiter{
		Config: c, start: start,
		deadline: start.Add(lifecycle.Budget(c.Grace, 0)),
		view:     view{take: c.look, own: c.Serves, node: nodeAddress(c)},
	}
	address, err := helperAddress(c.Node)
	if err != nil {
		c.Logger.Error("no helper can be asked", "err", err)
	} else {
		helper := newClient(address, c.TokenFile, c.transport, c.Logger)
		defer helper.close()
		w.helper = &helper
	}
	return w.wait(ctx)
}

// nodeAddress is the node's, if the configuration names it.
func nodeAddress(c Config) netip.Addr {
	for _, name := range []string{c.HostIP, c.Node} {
		if a, err := netip.ParseAddr(hostOf(name)); err == nil {
			return a.Unmap().WithZone("")
		}
	}
	return netip.Addr{}
}

// waiter is one wait. It is used by one goroutine.
type waiter struct {
	Config
	view
	helper   *client // nil where there is none to be asked
	start    time.Time
	deadline time.Time
	// told is set once a helper has told a deadline.
	told bool
	// absent is set while no helper answers, so that it is said once.
	absent bool
	// none is set while the last look of the fallback showed no session.
	none  bool
	phase string
	mark  string
}

func (w *waiter) wait(ctx context.Context) Result {
	hold := time.Duration(0) // the first answer comes at once and tells the deadline
	for {
		began := time.Now()
		answer, ok := w.ask(ctx, hold)
		now := time.Now()
		next := earlier(began.Add(retryEvery), w.deadline)
		switch {
		case ctx.Err() != nil:
			return w.result(lifecycle.Cancelled, false)
		case ok && answer.Released():
			return w.result(answer.Reason, true)
		case ok && now.After(w.deadline.Add(overdue)):
			// A helper that does not release by its own deadline is not obeyed.
			return w.result(lifecycle.Expired, false)
		case ok:
			next = w.next
			if hold > 0 && !answer.Look {
				next = now.Add(minPoll)
			}
			hold, w.none = pollWait, false
		default:
			hold = 0
			if reason := w.alone(ctx); reason != "" {
				return w.result(reason, false)
			}
		}
		if !pause(ctx, next) {
			return w.result(lifecycle.Cancelled, false)
		}
	}
}

// ask reports the sockets, asks the helper and takes in the deadline. ok is false
// where it did not answer.
func (w *waiter) ask(ctx context.Context, hold time.Duration) (answer lifecycle.DrainAnswer, ok bool) {
	if w.helper == nil {
		return answer, false
	}
	// A helper that hangs must not hold the hook beyond the deadline.
	bounded, cancel := context.WithDeadline(ctx, w.deadline.Add(overdue))
	defer cancel()
	sockets := w.report(bounded, w.mark)
	answer, err := w.helper.ask(bounded, lifecycle.DrainRequest{
		ElapsedSeconds:       time.Since(w.start).Seconds(),
		WaitSeconds:          hold.Seconds(),
		Version:              w.Version,
		FallbackSleepSeconds: w.FallbackSleep.Seconds(),
		Serves:               w.Serves,
		Sockets:              sockets,
	})
	w.host = w.host || answer.HostNetwork
	if err != nil {
		if ctx.Err() == nil && !w.absent {
			w.absent = true
			w.Logger.Warn("no helper answers: "+w.instead(), "err", err)
		}
		return answer, false
	}
	if w.absent {
		w.absent = false
		w.Logger.Info("the helper answers again")
	}
	w.mark = answer.Mark
	if left, tells := answer.Remaining(); tells {
		told := time.Now().Add(left)
		if !w.told || told.Before(w.deadline) {
			w.deadline, w.told = told, true
		}
	}
	if answer.Phase != w.phase {
		w.Logger.Info("phase", "from", w.phase, "to", answer.Phase, "reason", string(answer.Reason))
		w.phase = answer.Phase
	}
	return answer, true
}

// instead says what decides without a helper.
func (w *waiter) instead() string {
	switch {
	case w.host && len(w.Ports) == 0:
		return "on the node's network nothing else tells of the pod's sessions, name its ports with --port; waiting for fallback-sleep"
	case w.unknown != nil:
		return "the pod's own sockets are unknown too; waiting for the deadline"
	}
	return "the pod's own sockets decide meanwhile"
}

// alone decides without a helper; the empty reason means to wait on. A look can
// miss a socket, so that two in a row have to show none.
func (w *waiter) alone(ctx context.Context) lifecycle.Reason {
	open, known := w.sessions(ctx, w.Ports)
	now := time.Now()
	past, slept := !now.Before(w.deadline), now.Sub(w.start) >= w.FallbackSleep
	before := w.none
	w.none = known && open == 0
	switch {
	case w.host && len(w.Ports) == 0 && (past || slept):
		return Slept
	case past && w.none:
		return lifecycle.Drained
	case past:
		return lifecycle.Expired
	case w.none && before && slept:
		return lifecycle.Drained
	}
	return ""
}

func (w *waiter) result(reason lifecycle.Reason, helper bool) Result {
	r := Result{Reason: reason, Helper: helper, Waited: time.Since(w.start)}
	w.Logger.Info("the pod may end", "reason", string(reason), "helper", helper, "seconds", r.Waited.Seconds())
	return r
}

// pause waits until the moment; false means that ctx ended.
func pause(ctx context.Context, until time.Time) bool {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
