package node

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// watch is what a drain needs of a *conntrack.Watch.
type watch interface {
	Changes() <-chan struct{}
	Counts() conntrack.Counts
	Confirm(context.Context) (conntrack.Counts, error)
	Sessions() []conntrack.Session
	Report(conntrack.SocketReport)
	Unreported()
	Err() error
	Close() error
}

// drainer does the work of drains. It is safe for concurrent use.
type drainer struct {
	open      func(context.Context, conntrack.Target) (watch, error)
	live      func(ctx context.Context, namespace, name string, uid types.UID) (pod *corev1.Pod, date time.Time, _ error)
	shutdown  *shutdown
	routes    *routes
	balancers balancers
	own       func() ([]netip.Addr, error)
	events    events
	tally     *tally
	blind     *blindness
}

// drain blocks until the drain is released or ctx ends. Nothing of it runs
// afterwards.
func (r *drainer) drain(ctx context.Context, d *drain) {
	ctx, stop := context.WithCancel(ctx)
	v := &vigil{
		drainer: r, drain: d, begun: time.Now(),
		serving: true, confirmBy: time.Now().Add(liveTimeout + time.Second),
		routed: true,
		lives:  make(chan liveAnswer, 1), stops: make(chan stopAnswer, 1), opens: make(chan openAnswer, 1),
		delays: newDelays(),
	}
	defer func() {
		stop()
		v.end()
	}()
	v.run(ctx)
}

// vigil is the work on one drain. It is used by one goroutine.
type vigil struct {
	*drainer
	*drain
	begun time.Time
	tasks sync.WaitGroup

	serving   bool
	confirmBy time.Time
	cancelled bool
	asking    bool      // whether the pod terminates
	askAt     time.Time // when that has to be asked
	lives     chan liveAnswer
	stops     chan stopAnswer
	warned    bool // of containers that nothing holds

	slices      *follower
	route       route
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
	said    bool // by an Event, that the pod waits
	freedom freedom
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
		v.prepare(ctx, now)
		v.handReport()
		counts := v.counts()
		v.pending = v.consult(counts, now)
		o := v.observe(counts, now)
		decision := v.lastLook(lifecycle.Decide(o, now), o, now)
		if decision.Reason == lifecycle.Drained && o.Policy.Until == lifecycle.UntilSessions {
			counts = v.ask(ctx, o.Deadline)
			now = time.Now()
			v.pending = v.consult(counts, now)
			o = v.observe(counts, now)
			decision = lifecycle.Decide(o, now)
		}
		v.conclude(decision, o.Deadline, counts, now)
		if decision.Phase == lifecycle.Released {
			return
		}
		timer.Reset(v.rest(decision.Next, now))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-v.wake:
		case <-v.routeChanges():
			v.follow(time.Now())
		case <-v.watchChanges():
			v.freedom.changed(time.Now())
			select {
			case <-time.After(lookPause):
			case <-timer.C:
			case <-ctx.Done():
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

// rest is how long nothing has to be done unless something happens.
func (v *vigil) rest(next, now time.Time) time.Duration {
	rest := min(next.Sub(now), lookEvery)
	if look := v.looks.next; !look.IsZero() {
		rest = min(rest, look.Sub(now))
	}
	return max(0, rest)
}

func (v *vigil) current() *corev1.Pod {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pod
}

// settingsNow are what the pod asks for now.
func (v *vigil) settingsNow() lifecycle.Settings {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.settings
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
	v.tellFaults()
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

// handReport gives the watch what the pod has told of its own sockets.
func (v *vigil) handReport() {
	if v.watch == nil {
		return
	}
	if r := v.reports(); r != nil {
		v.watch.Report(v.ready(*r))
		v.looks.handed(*r, time.Now())
	} else if own := v.sockets.ownPorts(); len(own) > 0 {
		v.watch.Report(conntrack.SocketReport{Own: own}) // of a hook that cannot look
	}
}

// retarget lets go of a watch for something that the pod no longer asks for. Until
// there is another one nothing is known of its sessions.
func (v *vigil) retarget(now time.Time) {
	s := v.wanted()
	if v.watch == nil || (s.IdleAfter == v.asked.IdleAfter && slices.Equal(s.Ports, v.asked.Ports)) {
		return
	}
	v.log.Info("the pod asks for something else", "idle-after", s.IdleAfter, "ports", s.Ports)
	v.closeWatch()
	v.openAt = now
}

func (v *vigil) closeWatch() {
	if err := v.watch.Close(); err != nil {
		v.log.Warn("the sessions' watch did not close", "err", err)
	}
	v.watch = nil
}

// wanted is what the pod asks for. The addresses of a hostNetwork pod are the
// node's: one that takes the names of its ports away keeps those that it had.
func (v *vigil) wanted() lifecycle.Settings {
	s := v.settingsNow()
	if len(s.Ports) == 0 && v.current().Spec.HostNetwork {
		s.Ports = v.asked.Ports
	}
	return s
}

// targetOf is what counts as a session of the pod. It is not ok where nothing may:
// of a hostNetwork pod nothing counts but the ports that it names.
func (v *vigil) targetOf(pod *corev1.Pod) (conntrack.Target, bool) {
	v.asked = v.wanted()
	t := conntrack.Target{
		Addresses:   addressesOf(pod),
		Ports:       v.asked.Ports,
		IdleAfter:   v.asked.IdleAfter,
		ProbedPorts: probed(pod),
		// Where nothing is tracked, they alone can tell.
		SocketsReported: v.sockets.reporting(time.Now()),
	}
	if len(t.Ports) == 0 {
		t.Ports = served(v.route.ports, pod)
	}
	own, err := v.own()
	if err != nil {
		v.log.Warn("the node's addresses are unknown: its probes look like traffic", "err", err)
	}
	t.ProbedFrom = own
	if !pod.Spec.HostNetwork {
		return t, true
	}
	t.Addresses = append(t.Addresses, reachable(own)...)
	return t, len(v.asked.Ports) > 0
}

// reachable leaves the addresses that a client elsewhere can have connected to.
func reachable(own []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(own), func(a netip.Addr) bool {
		return a.IsLoopback() || a.IsUnspecified() || a.IsMulticast()
	})
}

// tellFaults tells people what is wrong with the pod, each once.
func (v *vigil) tellFaults() {
	pod := v.current()
	for _, m := range v.toTell() {
		v.events.malformed(pod, m)
	}
	if names := unhooked(pod); len(names) > 0 && !v.warned {
		v.events.partial(pod, names)
	}
	v.warned = true
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

// follow takes in what the slices say.
func (v *vigil) follow(now time.Time) {
	v.route = v.slices.of(v.current())
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

func (v *vigil) observe(c conntrack.Counts, now time.Time) lifecycle.Observation {
	v.mu.Lock()
	defer v.mu.Unlock()
	o := lifecycle.Observation{
		Serving: v.serving, ConfirmBy: v.confirmBy,
		Routed: v.routed, WithdrawnAt: v.withdrawnAt,
		Deadline: v.deadline,
		Policy:   v.settings.Over(v.policy),
		Known:    c.Known, Blocking: c.Blocking(), Opening: c.Opening, LastNew: c.LastNew,
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

// conclude publishes a decision, and tells people where it changes something.
func (v *vigil) conclude(d lifecycle.Decision, deadline time.Time, c conntrack.Counts, now time.Time) {
	pod, waited := v.current(), v.waited(now)
	var left []conntrack.Session
	if v.watch != nil && c.Blocking() > 0 && (d.Phase == lifecycle.Released || !v.said) {
		left = blocking(v.watch.Sessions())
	}
	v.measure(d, c, now)
	v.blind.saw(c, d.Phase == lifecycle.Released)
	v.sight.notes(v.unknownBecause())
	if d.Phase == lifecycle.Released {
		v.sight.closes(left)
	}
	v.become(state{phase: d.Phase, reason: d.Reason, counts: c, cut: d.Reason == lifecycle.Expired})
	v.sayDraining(d, deadline, c, left, now)
	if d.Phase != lifecycle.Released {
		return
	}
	v.tally.released(d.Reason, waited)
	switch d.Reason {
	case lifecycle.Drained:
		if v.settingsNow().Until == lifecycle.UntilWithdrawn {
			v.events.withdrawn(pod, c, waited)
		} else {
			v.events.drained(pod, c, waited)
		}
	case lifecycle.Expired:
		v.tally.cut(c)
		v.events.expired(pod, c, left, waited, v.begun, v.unknownBecause())
	case lifecycle.ReleasedByUser:
		by, why := v.releasedBy()
		v.events.released(pod, c, left, waited, v.begun, by, why)
	default:
	}
}

// measure counts what came late, and from when on nothing holds the pod.
func (v *vigil) measure(d lifecycle.Decision, c conntrack.Counts, now time.Time) {
	v.tally.late.Add(float64(v.freedom.arrived(c, v.routed)))
	v.freedom.saw(c, now)
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
		v.events.draining(v.current(), c, left, deadline.Sub(now), v.begun)
	case !c.Known && v.unknownBecause() != nil && now.Sub(v.begun) > unknownFor:
		v.events.unknown(v.current(), deadline.Sub(now), v.unknownBecause())
	default:
		return
	}
	v.said = true
}

// unknownBecause says what kept the sessions unknown, or nothing.
func (v *vigil) unknownBecause() error {
	if v.watch != nil {
		return v.watch.Err()
	}
	return v.fault
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

// blocking leaves what a release waits for.
func blocking(all []conntrack.Session) []conntrack.Session {
	var left []conntrack.Session
	for _, s := range all {
		if s.State == conntrack.Open || s.State == conntrack.Lost {
			left = append(left, s)
		}
	}
	return left
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
