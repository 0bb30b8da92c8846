package hook

import (
	"context"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
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
	// lookTimeout is how long the kernel may take to list the pod's sockets, beyond the
	// time in which a look cannot be afforded.
	lookTimeout = 2 * time.Second
	// untold is the part of a CPU that looks may take before a helper has said how much
	// it is: very many hooks may begin at once.
	untold = 0.01
	// lastLook is what a look may take after that.
	lastLook = 50 * time.Millisecond
	// lastWord is how long the last request may take.
	lastWord = 200 * time.Millisecond
)

// Slept is the Reason of a wait that nobody could tell anything, on the node's own
// network: a plain sleep.
const Slept lifecycle.Reason = "Slept"

// Result says how a wait ended.
type Result struct {
	// Reason is the helper's; Drained, Expired or Slept where the fallback decided,
	// Drained where the hook ended by itself, with the helper's permission, and
	// Cancelled when the context ended.
	Reason lifecycle.Reason
	// Helper is false where the fallback decided.
	Helper bool
	// Cut are the requests that were in flight when the hook ended by itself.
	Cut int
	// Waited is how long it took.
	Waited time.Duration
}

// Wait blocks until the pod may end: the helper says so, or has permitted to end at a
// moment at which no request is in flight, and there is one; or, while no helper
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
	e := newEyes(c, false)
	looking, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { e.Run(looking) })
	defer func() {
		stop()
		running.Wait()
	}()
	return wait(ctx, c, start, e, signalFirst)
}

// wait is Wait with eyes that look already. signal sends one to the application; nil
// where it is in another container.
func wait(ctx context.Context, c Config, start time.Time, e *looks.Eyes, signal func(syscall.Signal) error) Result {
	return newWaiter(c, start, e, signal).run(ctx)
}

func newWaiter(c Config, start time.Time, e *looks.Eyes, signal func(syscall.Signal) error) *waiter {
	return &waiter{
		Config: c, start: start,
		deadline: start.Add(lifecycle.Budget(c.Grace, 0)),
		eyes:     e, node: nodeAddress(c), signal: signal,
	}
}

// run blocks until the end.
func (w *waiter) run(ctx context.Context) Result {
	address, err := helperAddress(w.Node)
	if err != nil {
		w.Logger.Error("no helper can be asked", "err", err)
	} else {
		helper := newClient(address, w.TokenFile, w.transport, w.Logger)
		defer helper.close()
		w.helper = &helper
	}
	polls, end := context.WithCancel(ctx)
	w.quiet.end = end
	defer w.notices.Wait()
	defer end()
	w.eyes.Spend(untold)
	defer w.eyes.Begin(w.quiet.look)()
	return w.wait(ctx, polls)
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

// waiter is one wait. It is used by one goroutine, but for quiet.
type waiter struct {
	Config
	eyes     *looks.Eyes
	quiet    quiet
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
	// host is set where the network namespace is the node's: then its sockets are not
	// the pod's, and only ports that were named tell of it. node is the node's address.
	host bool
	node netip.Addr
	// unknown is why the last look failed, blind why it told of no request, if that was
	// said.
	unknown error
	blind   string

	signal  func(syscall.Signal) error
	notices sync.WaitGroup
	// ordered is set once a Notify was carried out or is being so. notified receives
	// how it went, and is nil afterwards; that is unheard until a helper has answered to
	// it.
	ordered  bool
	notified chan lifecycle.Notified
	unheard  *lifecycle.Notified
}

// wait blocks until the end. polls ends before ctx does where the hook ends by itself.
func (w *waiter) wait(ctx, polls context.Context) Result {
	hold := time.Duration(0) // the first answer comes at once and tells the deadline
	for {
		began := time.Now()
		answer, outcome := w.ask(polls, hold)
		now := time.Now()
		next := earlier(began.Add(retryEvery), w.deadline)
		switch {
		case w.quiet.over() != nil:
			return w.leave(ctx)
		case ctx.Err() != nil:
			return w.result(lifecycle.Cancelled, false)
		case outcome == heard && answer.Released():
			return w.result(answer.Reason, true)
		case outcome == heard && now.After(w.deadline.Add(overdue)):
			// A helper that does not release by its own deadline is not obeyed.
			return w.result(lifecycle.Expired, false)
		case outcome == heard:
			next = began.Add(minPoll)
			if hold > 0 && !answer.Look {
				next = now.Add(minPoll)
			}
			hold, w.none = pollWait, false
			if w.unheard == nil && len(w.notified) > 0 {
				hold = 0
			}
		case outcome == interrupted && now.Before(w.deadline.Add(overdue)):
			next, hold = began.Add(minPoll), 0
		default:
			hold = 0
			if reason := w.alone(polls); reason != "" {
				return w.result(reason, false)
			}
		}
		if !pause(polls, next) {
			if w.quiet.over() != nil {
				return w.leave(ctx)
			}
			return w.result(lifecycle.Cancelled, false)
		}
	}
}

// outcome is what became of one request.
type outcome uint8

const (
	unheard     outcome = iota // the helper did not answer
	heard                      // it did
	interrupted                // the hook itself had something to say before
)

// ask reports what the pod's sockets are and do, asks the helper and takes in the
// answer.
func (w *waiter) ask(ctx context.Context, hold time.Duration) (answer lifecycle.DrainAnswer, is outcome) {
	if w.helper == nil {
		return answer, unheard
	}
	// A helper that hangs must not hold the hook beyond the deadline.
	bounded, cancel := context.WithDeadline(ctx, w.deadline.Add(overdue))
	defer cancel()
	w.quiet.hold(cancel)
	request := w.request(bounded, hold)
	w.quiet.asks()
	err := context.Cause(bounded) // a look may have lasted until then
	if err == nil {
		answer, err = w.helper.ask(bounded, request)
	}
	stopped := w.quiet.answered()
	w.host = w.host || answer.HostNetwork
	if err != nil && stopped {
		w.quiet.suspend()
		return answer, interrupted
	}
	if err != nil {
		w.quiet.permit(nil)
		if ctx.Err() == nil && !w.absent {
			w.absent = true
			w.Logger.Warn("no helper answers: "+w.instead(), "err", err)
		}
		return answer, unheard
	}
	if w.absent {
		w.absent = false
		w.Logger.Info("the helper answers again")
	}
	w.take(ctx, answer)
	return answer, heard
}

// request takes a look and makes a request of it.
func (w *waiter) request(ctx context.Context, hold time.Duration) lifecycle.DrainRequest {
	r := lifecycle.DrainRequest{
		Version:              w.Version,
		FallbackSleepSeconds: w.FallbackSleep.Seconds(),
		Serves:               w.Serves,
		Can:                  []string{lifecycle.CanRequest},
	}
	if w.signal != nil {
		r.Can = append(r.Can, lifecycle.CanSignal)
	}
	s := w.look(ctx)
	if !w.host {
		r.Can = append(r.Can, lifecycle.CanJudge)
		if s.Err == nil {
			r.Sockets = list(s, w.Serves, w.mark)
		}
		r.Requests = report(s, textSize(r.Sockets), w.quiet.lastQuiet())
		if r.Requests.Blind != "" {
			w.quiet.suspend() // until the helper has heard of it
		}
		if why := r.Requests.Blind; why != "" && why != w.blind && ctx.Err() == nil {
			w.blind = why
			w.Logger.Warn("cannot tell whether requests are in flight", "why", why)
		}
	}
	select {
	case n := <-w.notified:
		w.unheard, w.notified = &n, nil
	default:
	}
	r.Notified = w.unheard
	r.ElapsedSeconds, r.WaitSeconds = time.Since(w.start).Seconds(), hold.Seconds()
	return r
}

// look takes a look. It blocks for lookTimeout at the most.
func (w *waiter) look(ctx context.Context) looks.Sight {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	s := w.eyes.Fresh(ctx)
	w.unknown = s.Err
	w.host = w.host || isNodes(s, w.node)
	return s
}

// take takes in an answer.
func (w *waiter) take(ctx context.Context, answer lifecycle.DrainAnswer) {
	w.mark, w.unheard = answer.Mark, nil
	w.eyes.Spend(answer.LookShare)
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
	permission := answer.WhenQuiet
	if w.host || answer.Released() {
		permission = nil
	}
	w.quiet.permit(permission)
	if answer.Notify != nil && !w.ordered {
		w.notify(ctx, *answer.Notify)
	}
}

// notify tells the application beside the wait, and the helper how that went.
func (w *waiter) notify(ctx context.Context, order lifecycle.Notify) {
	notified := make(chan lifecycle.Notified, 1)
	w.ordered, w.notified = true, notified
	n := notifier{version: w.Version, own: w.eyes.Own(), signal: w.signal}
	w.notices.Go(func() {
		said := n.notify(ctx, order)
		if said.Failure != "" && ctx.Err() != nil {
			said.Failure = "the hook's wait was over before the application had answered"
		}
		switch {
		case said.Unanswered:
			w.Logger.Warn("whether the application was told is unknown", "why", said.Failure)
		case said.Failure != "":
			w.Logger.Warn("the application was not told", "why", said.Failure)
		default:
			w.Logger.Info("the application was told")
		}
		notified <- said
		w.quiet.hurry()
	})
}

// leave says the last word and ends the wait. How it went to tell the application is
// known by then: the wait's end has ended that, too.
func (w *waiter) leave(ctx context.Context) Result {
	last := w.quiet.over()
	ctx, cancel := context.WithTimeout(ctx, lastWord)
	defer cancel()
	if w.notified != nil {
		select {
		case n := <-w.notified:
			w.unheard = &n
		case <-ctx.Done():
		}
	}
	// The pod ends whether anybody hears it or not.
	if _, err := w.helper.ask(ctx, lifecycle.DrainRequest{
		ElapsedSeconds: time.Since(w.start).Seconds(), Version: w.Version, Serves: w.Serves, Leaving: last, Notified: w.unheard,
	}); err != nil {
		w.Logger.Info("the helper did not hear the last word", "err", err)
	}
	r := w.result(lifecycle.Drained, true)
	r.Cut = last.Cut
	return r
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
	// A kernel that hangs must not hold the hook beyond the deadline either.
	bounded, cancel := context.WithDeadline(ctx, latest(w.deadline.Add(overdue), time.Now().Add(lastLook)))
	defer cancel()
	s := w.look(bounded)
	open, known := sessions(s, w.Ports, w.Serves)
	known = known && (!w.host || len(w.Ports) > 0)
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

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
