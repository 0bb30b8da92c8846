package node

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// drain is one pod's termination, whatever number of hooks ask for it. Its methods
// are safe for concurrent use.
type drain struct {
	policy   lifecycle.Policy
	maxDrain time.Duration
	log      *slog.Logger

	// wake receives when the pod or the first start has changed.
	wake chan struct{}
	// released is closed when the hooks may return, ended when nothing of the drain
	// runs any more.
	released, ended chan struct{}

	mu  sync.Mutex
	pod *corev1.Pod
	// first is when the pod's first hook started.
	first time.Time
	// confirmed is set once it is as certain as it gets that the pod terminates:
	// from then on the deadline stands, and moves only to an earlier moment.
	confirmed bool
	deadline  time.Time
	gone      bool
	state     state
	// by and why are set once a person has ended the drain.
	by, why string
	// reported is the latest look at the pod's own sockets that no watch has had yet.
	reported *conntrack.SocketReport
}

// state is what a drain has come to.
type state struct {
	phase  lifecycle.Phase
	reason lifecycle.Reason
	counts conntrack.Counts
	// cut is set where the deadline came first.
	cut bool
}

func newDrain(pod *corev1.Pod, first time.Time, c Config) *drain {
	return &drain{
		policy: c.Policy, maxDrain: c.MaxDrain,
		log:  c.Logger.With("pod", pod.Namespace+"/"+pod.Name),
		wake: make(chan struct{}, 1), released: make(chan struct{}), ended: make(chan struct{}),
		pod: pod, first: first, state: state{phase: lifecycle.Serving},
	}
}

// started takes in when a hook of the pod says that it started.
func (d *drain) started(at time.Time) {
	d.mu.Lock()
	if at.Before(d.first) {
		d.first = at
		d.setDeadline()
	}
	d.mu.Unlock()
	d.notify()
}

// changed takes in the pod as it is now; gone says that it was deleted.
func (d *drain) changed(pod *corev1.Pod, gone bool) {
	d.mu.Lock()
	switch {
	case gone:
		d.gone = true
	case d.confirmed && pod.DeletionTimestamp == nil:
		// The watch lags behind what the API has said.
	default:
		d.pod = pod
		d.setDeadline()
	}
	d.mu.Unlock()
	d.notify()
}

// confirm notes that the pod terminates; its grace period counts from here on.
func (d *drain) confirm(pod *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pod = pod
	d.confirmed = true
	d.setDeadline()
}

// release ends the drain for a person, and says why where that is given. The hooks
// return as soon as the drain has looked up, within a second. Only the first call
// does something, and none does after the end.
func (d *drain) release(by, why string) {
	d.mu.Lock()
	if d.by == "" && d.state.phase != lifecycle.Released {
		d.by, d.why = cmp.Or(by, "somebody"), why
	}
	d.mu.Unlock()
	d.notify()
}

// report takes in a look at the pod's own sockets. Of several that come before the
// drain can use one, the latest counts.
func (d *drain) report(r conntrack.SocketReport) {
	d.mu.Lock()
	if d.reported == nil || r.At.After(d.reported.At) {
		d.reported = &r
	}
	d.mu.Unlock()
	d.notify()
}

// reports returns the look that came since the last call, or nil.
func (d *drain) reports() *conntrack.SocketReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.reported
	d.reported = nil
	return r
}

// remembered says whether the pod is on its way out after the drain's end, so that
// a hook that is run again has to join it.
func (d *drain) remembered() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.confirmed && lasts(d.state.reason)
}

// setDeadline moves the deadline to an earlier moment, if there is reason to. The
// mutex is held.
func (d *drain) setDeadline() {
	if !d.confirmed {
		return
	}
	deadline := d.first.Add(lifecycle.Budget(graceOf(d.pod), d.maxDrain))
	if d.deadline.IsZero() || deadline.Before(d.deadline) {
		d.deadline = deadline
	}
}

func (d *drain) notify() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// become publishes what was decided, and says whether the phase is another one.
func (d *drain) become(s state) bool {
	d.mu.Lock()
	before := d.state.phase
	d.state = s
	d.mu.Unlock()
	if before == s.phase {
		return false
	}
	d.log.Info("phase", "from", before.String(), "to", s.phase.String(),
		"reason", string(s.reason), "known", s.counts.Known, "open", s.counts.Open, "lost", s.counts.Lost)
	if s.phase == lifecycle.Released {
		close(d.released)
	}
	return true
}

// now returns what the drain has come to.
func (d *drain) now() state {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// await blocks until the drain is released, but not for longer than wait or ctx,
// and returns the answer for a hook.
func (d *drain) await(ctx context.Context, wait time.Duration) lifecycle.DrainAnswer {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-d.released:
	case <-timer.C:
	case <-ctx.Done():
	}
	return d.answer(time.Now())
}

func (d *drain) answer(now time.Time) lifecycle.DrainAnswer {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.state.counts
	a := lifecycle.DrainAnswer{Phase: d.state.phase.String(), Reason: d.state.reason, Source: c.Source.String()}
	// A deadline by a grace period that is not certain yet would bind the hook.
	if d.confirmed {
		left := max(0, d.deadline.Sub(now)).Seconds()
		a.RemainingSeconds = &left
	}
	if c.Known {
		a.Open, a.Idle, a.Lost = &c.Open, &c.Idle, &c.Lost
		if d.state.cut {
			cut := c.Blocking()
			a.Cut = &cut
		}
	}
	return a
}
