package node

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// vigil is the work on one drain. It is used by one goroutine.
type vigil struct {
	*drainer
	*drain
	begun time.Time
	tasks sync.WaitGroup

	serving   bool
	confirmBy time.Time
	denied    bool // somebody has said that the pod does not terminate
	cancelled bool
	asking    bool      // whether the pod terminates
	askAt     time.Time // when that has to be asked
	lives     chan liveAnswer
	stops     chan stopAnswer
	warned    bool // of containers that nothing holds

	slices      *follower
	route       route
	listed      []port // that some slice had for the pod, since the beginning
	routed      bool
	withdrawnAt time.Time
	delays      delays

	asked   lifecycle.Settings // what the target was made by
	target  conntrack.Target
	opening bool
	openAt  time.Time
	opens   chan openAnswer
	watch   watch
	fault   error
	looks   looks
	pending bool // the sockets have not confirmed the counts yet
	apart   apart
	renewAt time.Time // when other clients have to be in the permission
	before  holding   // what held the pod at the look before
	// word is the last of a hook that has gone by itself, wordOf what held the pod then,
	// endedBy the word if that was the end.
	word    *lifecycle.Leaving
	wordOf  holding
	endedBy *lifecycle.Leaving
	// permitted is set while hooks may have gone by themselves though no word came, unheard
	// if that was the end, as far as anybody knows.
	permitted, unheard bool
	saving             saving
	// orderAt is when the application will have to be told if nothing new comes, orderedAt
	// when it had to be, unsent set once it is said that it was not, or need not be.
	orderAt   time.Time
	orderedAt time.Time
	unsent    bool
	said      bool // by an Event, that the pod waits
	excused   bool // by an Event, that it is held for its sessions instead

	unjudgedSince time.Time // nobody can tell the pod's requests
	freedom       freedom
}

type liveAnswer struct {
	pod  *corev1.Pod
	date time.Time
	err  error
}

type stopAnswer struct {
	stopping bool
	err      error
}

type openAnswer struct {
	watch watch
	err   error
}

const (
	// lookEvery is how often a drain looks up when nothing happens.
	lookEvery = time.Second
	// After a change a drain pauses this long, so that a storm of them costs little.
	lookPause = 20 * time.Millisecond
	// With a large report of its sockets it is reportFactor times what that took, up to
	// reportPause.
	reportFactor = 10
	reportPause  = 200 * time.Millisecond
	// routesPatience is how long the first list of slices may take before the ports
	// that the pod declares have to do.
	routesPatience = 2 * time.Second
	// openAgain is how long after a failure the kernel is asked again.
	openAgain = time.Second
	// liveAgain is how long after a failure the API is asked again whether the pod
	// terminates.
	liveAgain = 2 * time.Second
)

func (v *vigil) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		v.askLive(ctx, now)
		v.assume(now)
		v.prepare(ctx, now)
		looked := now
		pause := pauseAfter(v.handReport())
		counts := v.counts()
		o := v.see(counts, now, false)
		decision := v.lastLook(lifecycle.Decide(o, now), o, now)
		if v.unconfirmed(decision, o) {
			counts = v.ask(ctx, o.Deadline)
			now = time.Now()
			o = v.see(counts, now, true)
			decision = lifecycle.Decide(o, now)
		}
		decision = v.ended(decision)
		v.permit(decision, now)
		v.order(decision, o, now)
		v.conclude(decision, o, counts, now)
		if decision.Phase == lifecycle.Released {
			return
		}
		timer.Reset(v.rest(decision.Next, now))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-v.wake:
			if !pauses(ctx, timer, time.Until(looked.Add(pause))) {
				return
			}
		case <-v.routeChanges():
			v.follow(time.Now())
		case <-v.watchChanges():
			v.freedom.changed(time.Now())
			if !pauses(ctx, timer, lookPause) {
				return
			}
		case a := <-v.lives:
			v.confirmWith(ctx, a, time.Now())
		case a := <-v.stops:
			v.stopped(a, time.Now())
		case a := <-v.delays.answers:
			v.delayed(a)
		case a := <-v.opens:
			v.opened(a, time.Now())
		}
	}
}

// pauses waits that long, unless something is due before, and says whether ctx goes on.
func pauses(ctx context.Context, due *time.Timer, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
	case <-due.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// pauseAfter is how long after a look a request of a hook makes the drain look up again,
// by what the hook's report took, during which no other drain hears of its sessions. A
// request that comes later than that does so at once.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(lookPause, reportFactor*took), reportPause)
}

// rest is how long nothing has to be done unless something happens.
func (v *vigil) rest(next, now time.Time) time.Duration {
	rest := min(next.Sub(now), lookEvery)
	for _, due := range []time.Time{v.looks.next, v.apart.due, v.renewAt, v.orderAt} {
		if !due.IsZero() {
			rest = min(rest, due.Sub(now))
		}
	}
	return max(0, rest)
}

func (v *vigil) current() *corev1.Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pod
}

// prepare begins what a terminating pod needs and has not got.
func (v *vigil) prepare(ctx context.Context, now time.Time) {
	if v.serving || v.cancelled {
		return
	}
	if v.slices == nil {
		f, err := v.routes.follow(v.current().Namespace)
		if err != nil {
			v.log.Warn("the pod's routes are unknown", "err", err) // and so it is held for the whole withdrawal
		} else {
			v.slices = f
			v.follow(now)
		}
	}
	v.askForDelay(ctx)
	v.tellFaults(now)
	v.retarget(now)
	if v.watch != nil || v.opening || now.Before(v.openAt) {
		return
	}
	if !v.route.known && now.Sub(v.begun) < routesPatience {
		return
	}
	target, ok := v.targetOf(v.current())
	if !ok {
		return
	}
	v.opening, v.target = true, target
	v.tasks.Go(func() {
		w, err := v.open(ctx, target)
		v.opens <- openAnswer{w, err}
	})
}

// opened takes in a watch, or asks for another one later.
func (v *vigil) opened(a openAnswer, now time.Time) {
	v.opening = false
	if a.err != nil {
		if v.fault == nil {
			v.log.Error("the pod's sessions are unknown: it is held to its deadline", "err", a.err)
		}
		v.fault, v.openAt = a.err, now.Add(openAgain)
		return
	}
	v.watch, v.fault = a.watch, nil
	v.sight.opens(a.watch.Sessions, v.begun)
}

// handReport gives the watch what the pod has told of its own sockets, and returns how
// long that took.
func (v *vigil) handReport() time.Duration {
	if v.watch == nil {
		return 0
	}
	began := time.Now()
	if r := v.reports(); r != nil {
		v.watch.Report(v.ready(*r))
		v.looks.handed(*r, time.Now())
	} else if own := v.sockets.ownPorts(); len(own) > 0 {
		v.watch.Report(conntrack.SocketReport{Own: own}) // of a hook that cannot look
	}
	return time.Since(began)
}

// follow takes in what the slices say.
func (v *vigil) follow(now time.Time) {
	v.route = v.slices.of(v.current())
	for _, p := range v.route.ports {
		if !slices.Contains(v.listed, p) {
			v.listed = append(v.listed, p)
		}
	}
	// As long as nothing is known the pod may be routed.
	routed := !v.route.known || v.route.routed
	if v.routed && !routed {
		v.withdrawnAt = now
	}
	v.routed = routed
}

func (v *vigil) routeChanges() <-chan struct{} {
	if v.slices == nil {
		return nil
	}
	return v.slices.changes
}

func (v *vigil) watchChanges() <-chan struct{} {
	if v.watch == nil {
		return nil
	}
	return v.watch.Changes()
}

// end waits for what was begun and lets go of it.
func (v *vigil) end() {
	v.tasks.Wait()
	select {
	case a := <-v.opens:
		v.watch = a.watch
	default:
	}
	if v.watch != nil {
		v.closeWatch()
	}
	if v.slices != nil {
		v.slices.close()
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
