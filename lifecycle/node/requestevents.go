package node

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// quiet says that a pod was let go at a moment without a request, or with few of them, and
// how many sessions were not waited for at all.
func (e events) quiet(pod *corev1.Pod, c conntrack.Counts, last lifecycle.Leaving, left int, waited time.Duration) {
	on := ""
	if c.Blocking() > 0 && last.Cut <= c.Blocking() { // or else some have gone with the hook's container
		on = " on the " + number(c.Blocking(), "session") + " left"
	}
	surely, kind := last.Cut-last.Untold, corev1.EventTypeWarning
	var text string
	switch {
	case last.Cut == 0:
		kind, text = corev1.EventTypeNormal, "No request was in flight"+on
	case last.Untold == 0:
		text = number(surely, "request") + " cut" + on
	case surely == 0:
		text = fmt.Sprintf("No request is known to have been cut%s, of %d of which nobody could tell", on, last.Untold)
	default:
		text = fmt.Sprintf("%s cut%s, of %d of which nobody could tell whether there was one, too", number(surely, "request"), on, last.Untold)
	}
	if last.Cut > 0 {
		text += ", because no moment came without one (conndrain.io/busy-after)"
	}
	if left > 0 {
		text += fmt.Sprintf("; %s left to the application", number(left, "session"))
	}
	e.recorder.Eventf(pod, kind, reasonDrained, "%s; released %s after the first hook began", text, inSeconds(waited))
}

// unheard says that the hook is gone that was permitted to let its pod go, and has not said
// how that went.
func (e events) unheard(pod *corev1.Pod, waited time.Duration) {
	e.recorder.Eventf(pod, corev1.EventTypeWarning, reasonDrained,
		"Its hook is gone, and the last word of that has not come. It was permitted to return between two requests: "+
			"whether requests were cut is unknown; noticed %s after the first hook began", inSeconds(waited))
}

// inFlight says what a hook that went before the others has cut: which requests were its own
// container's nobody knows.
func inFlight(l lifecycle.Leaving) string {
	how := "in flight"
	switch l.Untold {
	case 0:
	case l.Cut:
		how = "perhaps in flight"
	default:
		how = fmt.Sprintf("in flight, %d of them perhaps,", l.Untold)
	}
	return fmt.Sprintf("%s %s when one of its hooks returned before the rest (conndrain.io/busy-after)", numberAre(l.Cut, "request"), how)
}

// earlier says what another policy would have saved, where that is worth a word.
func earlier(saved time.Duration) string {
	if saved <= 0 {
		return ""
	}
	return fmt.Sprintf(". With conndrain.io/until: requests it would have been released at least %s earlier, if its clients speak HTTP/1", inSeconds(saved))
}

// unjudged says why a pod is held for its sessions although it asks for less.
func (e events) unjudged(pod *corev1.Pod, why string) {
	e.recorder.Eventf(pod, corev1.EventTypeWarning, reasonUnjudged,
		"conndrain.io/until asks for requests, but the pod is held until its sessions have ended: %s", why)
}

// notified says that the application was told, or why it was not.
func (e events) notified(pod *corev1.Pod, what *lifecycle.Notify, n lifecycle.Notified) {
	switch {
	case n.Unanswered:
		e.notifyUnknown(pod, what, n.Failure)
		return
	case n.Failure != "":
		e.notifyFailed(pod, what, n.Failure)
		return
	}
	e.recorder.Eventf(pod, corev1.EventTypeNormal, reasonNotified, "The application was told that it will end, by %s", spoken(what))
}

func (e events) notifyFailed(pod *corev1.Pod, what *lifecycle.Notify, why string) {
	e.recorder.Eventf(pod, corev1.EventTypeWarning, reasonNotifyFailed,
		"The application was not told that it will end, by %s: %s", spoken(what), why)
}

// notifyUnknown is for an application that may have been told.
func (e events) notifyUnknown(pod *corev1.Pod, what *lifecycle.Notify, why string) {
	e.recorder.Eventf(pod, corev1.EventTypeWarning, reasonNotifyFailed,
		"Whether the application was told that it will end, by %s, is unknown: %s", spoken(what), why)
}

// spoken is how the annotation writes it.
func spoken(n *lifecycle.Notify) string {
	if n.Signal != "" {
		return n.Signal
	}
	return fmt.Sprintf("%s %s://:%d%s", cmp.Or(n.Method, "POST"), n.Scheme, n.Port, n.Path)
}
