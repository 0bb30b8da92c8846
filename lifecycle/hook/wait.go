package hook

import (
	"context"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

const (
	// pollWait is how long the helper holds a request.
	pollWait = 10 * time.Second
	// retryEvery is how often a helper that did not answer is tried again.
	retryEvery = time.Second
)

// Result says how a wait ended.
type Result struct {
	// Reason is the helper's; Drained or Expired where the fallback decided, and
	// Cancelled when the context ended.
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
func Wait(ctx context.Context, c Config) Result {
	start := time.Now()
	c.Defaults()
	w := &waiter{
		Config: c, start: start,
		deadline: start.Add(lifecycle.Budget(c.Grace, 0)),
	}
	address, err := helperAddress(c.Node)
	if err != nil {
		c.Logger.Error("no helper can be asked", "err", err)
	} else {
		helper := newClient(address, c.transport)
		defer helper.close()
		w.helper = &helper
	}
	return w.wait(ctx)
}

// waiter is one wait. It is used by one goroutine.
type waiter struct {
	Config
	helper   *client // nil where there is none to be asked
	start    time.Time
	deadline time.Time
	// told is set once a helper has told a deadline.
	told bool
	// absent is set while no helper answers, so that it is said once.
	absent bool
	phase  string
	served []uint16
}

func (w *waiter) wait(ctx context.Context) Result {
	hold := time.Duration(0) // the first answer comes at once and tells the deadline
	for {
		answer, ok := w.ask(ctx, hold)
		switch {
		case ctx.Err() != nil:
			return w.result(lifecycle.Cancelled, false)
		case ok && answer.Released():
			return w.result(answer.Reason, true)
		case ok && time.Now().After(w.deadline.Add(answerMargin)):
			// A helper that does not release by its own deadline is not obeyed.
			return w.result(lifecycle.Expired, false)
		case ok && hold == 0:
			hold = pollWait
			continue
		case ok:
			if !w.pause(ctx, time.Now().Add(minPoll)) {
				return w.result(lifecycle.Cancelled, false)
			}
			continue
		}
		hold = 0
		now := time.Now()
		if reason := w.alone(ctx, now); reason != "" {
			return w.result(reason, false)
		}
		if !w.pause(ctx, earlier(now.Add(retryEvery), w.deadline)) {
			return w.result(lifecycle.Cancelled, false)
		}
	}
}

// minPoll keeps a helper that holds nothing from being asked without a pause.
const minPoll = 50 * time.Millisecond

// ask asks the helper and takes in the deadline. ok is false where it did not
// answer.
func (w *waiter) ask(ctx context.Context, hold time.Duration) (answer lifecycle.DrainAnswer, ok bool) {
	if w.helper == nil {
		return answer, false
	}
	// A helper that hangs must not hold the hook beyond the deadline.
	bounded, cancel := context.WithDeadline(ctx, w.deadline.Add(answerMargin))
	defer cancel()
	answer, err := w.helper.ask(bounded, lifecycle.DrainRequest{
		ElapsedSeconds: time.Since(w.start).Seconds(),
		WaitSeconds:    hold.Seconds(),
		Version:        w.Version,
	})
	if err != nil {
		if ctx.Err() == nil && !w.absent {
			w.absent = true
			w.Logger.Warn("no helper answers: the pod's own sockets decide meanwhile", "err", err)
		}
		return answer, false
	}
	if w.absent {
		w.absent = false
		w.Logger.Info("the helper answers again")
	}
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

// alone decides without a helper; the empty reason means to wait on.
func (w *waiter) alone(ctx context.Context, now time.Time) lifecycle.Reason {
	open, known := w.sessions(ctx)
	switch {
	case !now.Before(w.deadline) && (!known || open > 0):
		return lifecycle.Expired
	case !now.Before(w.deadline):
		return lifecycle.Drained
	case known && open == 0 && now.Sub(w.start) >= w.FallbackSleep:
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
func (w *waiter) pause(ctx context.Context, until time.Time) bool {
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
