package node

import (
	"context"
	"time"
)

// askLive asks the API whether the pod is terminating: its watch can lag behind a
// deletion. It does so until it is told.
func (v *vigil) askLive(ctx context.Context, now time.Time) {
	if v.asking || v.cancelled || now.Before(v.askAt) {
		return
	}
	v.asking = true
	v.asks(now)
	pod := v.current()
	v.tasks.Go(func() {
		live, date, err := v.live(ctx, pod.Namespace, pod.Name, pod.UID)
		v.lives <- liveAnswer{live, date, err}
	})
}

// assume takes the pod for one that terminates where nobody has said no in time, such
// as when this process stood still while it asked.
func (v *vigil) assume(now time.Time) {
	if v.serving && !v.denied && !v.cancelled && !now.Before(v.confirmBy) {
		v.log.Warn("it is unknown whether the pod is terminating: taken for yes")
		v.serving = false
		v.confirm(v.current())
	}
}

// confirmWith takes in what the API says of the pod. An API that does not answer
// must not end a pod at once: until it does, the pod is taken for one that
// terminates. Once it has answered it is not asked any more.
func (v *vigil) confirmWith(ctx context.Context, a liveAnswer, now time.Time) {
	switch {
	case a.err != nil:
		v.asking, v.askAt = false, now.Add(liveAgain)
		if v.serving {
			v.log.Warn("it is unknown whether the pod is terminating: taken for yes", "err", a.err)
			v.serving = false
			v.confirm(v.current())
		}
	case a.pod == nil:
		v.cancelled = true
	case a.pod.DeletionTimestamp == nil:
		// A pod that ends with its node is not deleted.
		v.confirmBy = now.Add(shutdownLook + 2*nodeTimeout)
		v.tasks.Go(func() {
			stopping, err := v.shutdown.begun(ctx)
			v.stops <- stopAnswer{stopping, err}
		})
	default:
		v.serving = false
		if v.inherited {
			v.started(now.Add(-terminatingFor(a.pod, a.date)))
		}
		v.confirm(a.pod)
	}
}

// stopped takes in whether the node is shutting down.
func (v *vigil) stopped(a stopAnswer, now time.Time) {
	if v.deleted() {
		v.serving = false
		v.confirm(v.current())
		return
	}
	if !a.stopping && a.err == nil {
		v.serving, v.denied, v.confirmBy = true, true, now
		return
	}
	pod := v.current()
	var priority int32
	if pod.Spec.Priority != nil {
		priority = *pod.Spec.Priority
	}
	window := v.shutdown.window(priority)
	v.log.Info("the pod ends with its node, or that is unknown", "seconds", window.Seconds(), "err", a.err)
	v.serving = false
	v.stopping(window)
}

// deleted says whether the pod's deletion is known by now.
func (v *vigil) deleted() bool { return v.current().DeletionTimestamp != nil }
