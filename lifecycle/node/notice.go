package node

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/lifecycle"
)

// notice is the order to tell the application that its pod's drain has begun: one hook
// is to send a request, or each of those that can a signal. The drain's mutex guards
// it.
//
// How a hook is told once. A hook gives back the mark of the last answer that it had.
// The marks of a hook that was told are kept; one that comes with another mark was
// not. An answer that was lost on its way is so told again, and no other one. A hook
// itself carries out one order in its life.
//
// What a restart of the helper means: a hook that was told by the one before is told
// again, and does nothing; where there are several another one may send the request a
// second time. A hook that was started anew as well may be told nothing; see inherited.
type notice struct {
	what *lifecycle.Notify // nil before it is due
	// can is all that some hook was able to do.
	can []string
	// given is how many have been told, last when.
	given int
	last  time.Time
	// with is the mark that the one came with which was to send the request.
	with string
	told map[string]*toldHook // by mark
	// unmarked is set once a hook was told that gives no mark back, foreign once one has come
	// with a mark that is not of this helper, and again once one was told after that: it may
	// have been told by the helper before.
	unmarked, foreign, again bool
	results                  int
}

// toldHook are the marks that a hook may come with: it has had the last answer, or not.
type toldHook struct{ marks []string }

const (
	// noticePatience is how long it may take until a hook that can is there, and
	// resultPatience until it has said how it went.
	noticePatience = reporterPatience
	resultPatience = 20 * time.Second
)

// maxGiven is how many orders a pod gets: of more hooks than a pod has containers, most
// are made up.
const maxGiven = 64

// owed says whether the hook has to be told. The drain's mutex is held.
func (n *notice) owed(c *caller) bool {
	switch {
	case n.what == nil, n.given >= maxGiven:
		return false
	case n.what.Signal == "":
		lost := c.mark != "" && c.mark == n.with
		return c.does(lifecycle.CanRequest) && n.results == 0 && (n.given == 0 || lost)
	case !c.does(lifecycle.CanSignal):
		return false
	case !c.looks:
		return !n.unmarked
	}
	return n.told[c.mark] == nil
}

// answered notes that the hook is answered with a mark, and with the order or without.
// The drain's mutex is held.
func (n *notice) answered(c *caller, mark string, order bool, now time.Time) {
	n.foreign = n.foreign || c.mark != "" && c.had.IsZero()
	if n.what == nil {
		return
	}
	if order {
		n.given++
		n.last, n.with = now, c.mark
		n.again = n.again || n.foreign
	}
	if n.what.Signal == "" {
		return
	}
	if !c.looks {
		n.unmarked = n.unmarked || order
		return
	}
	hook := n.told[c.mark]
	if hook == nil && !order {
		return
	}
	if hook == nil {
		n.told[mark] = &toldHook{[]string{mark}}
		return
	}
	for _, m := range hook.marks {
		if m != c.mark {
			delete(n.told, m)
		}
	}
	hook.marks = []string{c.mark, mark}
	n.told[mark] = hook
}

// order makes the notice due, once the pod has been sent nothing new for a while, and
// says what stands in its way.
func (v *vigil) order(d lifecycle.Decision, o lifecycle.Observation, now time.Time) {
	held := d.Phase == lifecycle.Draining || d.Phase == lifecycle.Settling
	settings := v.settingsNow()
	what := settings.Notify
	v.orderAt = time.Time{}
	if !v.orderedAt.IsZero() {
		v.sayUnsent(d, now)
		return
	}
	if d.Phase == lifecycle.Released && what != nil && lasts(d.Reason) {
		v.orderedAt = now
		v.refuse(v.current(), what, "the pod was released before that was due (see conndrain.io/notify-after)")
	}
	if !held || what == nil {
		return
	}
	if at := o.NotifyAt(settings.NotifyAfter); now.Before(at) {
		v.orderAt = at
		return
	}
	v.orderedAt = now
	pod := v.current()
	switch {
	case v.inherited:
		v.refuse(pod, what, "this node's helper was restarted in the middle of the drain, and the application may have been told before")
	case what.Signal != "" && pod.Spec.HostPID:
		v.refuse(pod, what, "with hostPID the first process is the node's: use a URL")
	case what.Signal != "" && pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		v.refuse(pod, what, "with shareProcessNamespace the first process is not the application: use a URL")
	default:
		v.mu.Lock()
		v.notice.what, v.notice.told = what, make(map[string]*toldHook)
		v.tellHeld()
		v.mu.Unlock()
	}
}

func (v *vigil) refuse(pod *corev1.Pod, what *lifecycle.Notify, why string) {
	v.unsent = true
	v.events.notifyFailed(pod, what, why)
}

// doubt is refuse for an order that may have been carried out.
func (v *vigil) doubt(what *lifecycle.Notify, why string) {
	v.unsent = true
	v.events.notifyUnknown(v.current(), what, why)
}

// sayUnsent says once that nobody could be told to send it, or that who was has not
// come back.
func (v *vigil) sayUnsent(d lifecycle.Decision, now time.Time) {
	if v.unsent {
		return
	}
	v.mu.Lock()
	n := v.notice
	v.mu.Unlock()
	late := now.Sub(v.orderedAt) >= noticePatience || d.Phase == lifecycle.Released
	switch {
	case n.results > 0 || n.again:
		v.unsent = true
	case n.given == 0 && late:
		v.refuse(v.current(), n.what, n.lacks())
	case n.given > 0 && now.Sub(n.last) >= resultPatience:
		v.doubt(n.what, "the hook that was to send it has not come back")
	}
}

// awaitResult waits, after the release, for what a hook that was told has still to say,
// and says where nothing comes of it. It blocks for resultPatience, until the pod is gone
// or ctx ends.
func (v *vigil) awaitResult(ctx context.Context) {
	if v.orderedAt.IsZero() || v.unsent || !lasts(v.now().reason) {
		return
	}
	timer := time.NewTimer(resultPatience)
	defer timer.Stop()
	for waits := true; ; {
		v.mu.Lock()
		n, gone := v.notice, v.gone
		v.mu.Unlock()
		switch {
		case n.results > 0 || n.again:
			return
		case gone || !waits:
			v.doubt(n.what, "the pod was released before the hook that was to send it had said how that went")
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-v.wake:
		case <-timer.C:
			waits = false
		}
	}
}

// lacks says why no hook could be told.
func (n *notice) lacks() string {
	needed := lifecycle.CanRequest
	if n.what.Signal != "" {
		needed = lifecycle.CanSignal
	}
	switch {
	case slices.Contains(n.can, needed):
		return "the pod was released before"
	case n.what.Signal != "" && slices.Contains(n.can, lifecycle.CanRequest):
		return "a signal needs the exec hook: use a URL with the sidecar"
	case len(n.can) == 0:
		return "the pod's hook is too old for it: use the present release of prestop"
	}
	return "no hook of the pod is able to"
}

// maxResults bounds what a pod can have said of it.
const maxResults = 16

// result takes in how a hook carried it out. It is not ok where nobody has asked for
// that.
func (d *drain) result(r lifecycle.Notified) (pod *corev1.Pod, what *lifecycle.Notify, n lifecycle.Notified, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Who was told by the helper before comes to this one.
	what = cmp.Or(d.notice.what, d.settings.Notify)
	if what == nil || d.notice.results >= maxResults {
		return nil, nil, n, false
	}
	d.notice.results++
	d.notify()
	r.Failure = clip(r.Failure)
	return d.pod, what, r, true
}
