package node

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// Reasons of Events on pods.
const (
	reasonDraining      = "Draining"
	reasonDrained       = "Drained"
	reasonDrainExpired  = "DrainExpired"
	reasonDrainReleased = "DrainReleased"
	reasonPartialHook   = "PartialHook"
	reasonDeaf          = "PortTaken"
	reasonMalformed     = "MalformedAnnotation"
	reasonDisabled      = "DrainDisabled"
	reasonAtDeletion    = "SessionsAtDeletion"
	reasonMissed        = "MissedHook"
	reasonUnjudged      = "HeldForSessions"
	reasonNotified      = "Notified"
	reasonNotifyFailed  = "NotifyFailed"
)

// maxPeers is how many sessions an Event names.
const maxPeers = 5

// events tell people what happens to a pod: one when it is held, one when it is let
// go, and one for each fault of the pod's own. What happens between is not told, so
// that a pod that settles and is held again a hundred times makes no more of them.
type events struct{ recorder record.EventRecorder }

// draining says what a pod is held for.
func (e events) draining(pod *corev1.Pod, c conntrack.Counts, requests int, left []conntrack.Session, remaining time.Duration, begun time.Time) {
	what := number(c.Blocking(), "session")
	switch {
	case requests == 0:
	case requests == c.Blocking():
		what = "a moment without a request on " + what
	default:
		what += fmt.Sprintf(", for %d of them only until a moment without a request", requests)
	}
	e.recorder.Eventf(pod, corev1.EventTypeNormal, reasonDraining, "Waiting up to %s for %s%s: %s",
		inSeconds(remaining), what, details(c), peers(left, begun))
}

// unknown says that a pod is held because nobody knows whether it has sessions.
func (e events) unknown(pod *corev1.Pod, remaining time.Duration, why error) {
	e.recorder.Eventf(pod, corev1.EventTypeWarning, reasonDraining,
		"Waiting up to %s, because it is unknown whether sessions are open: %s", inSeconds(remaining), why)
}

// disabled says that a pod only sleeps.
func (e events) disabled(pod *corev1.Pod, sleep time.Duration) {
	e.recorder.Eventf(pod, corev1.EventTypeWarning, reasonDisabled,
		"Sleeping %s without a look at its sessions, because conndrain is switched off on this node (CONNDRAIN_DISABLE)", inSeconds(sleep))
}

// missed says that a pod with a hook of ours is gone and its hook never came: what
// the hook prints nobody sees.
func (e events) missed(pod *corev1.Pod) {
	text := "The pod is gone, and its preStop hook never reached this node's helper"
	if pod.Spec.HostNetwork {
		text += ", or was refused. " + inSentence(errNoToken) + ". If it does, "
	} else {
		text += ": "
	}
	e.recorder.Event(pod, corev1.EventTypeWarning, reasonMissed,
		text+"the kubelet may not have been able to run it (see FailedPreStopHook), or its way to the helper was barred")
}

// inSentence is an error that begins a sentence.
func inSentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

// atDeletion says what a pod without a hook is about to cut.
func (e events) atDeletion(pod *corev1.Pod, open []conntrack.Session, after time.Duration) {
	them := "them"
	if len(open) == 1 {
		them = "it"
	}
	e.recorder.Eventf(pod, corev1.EventTypeWarning, reasonAtDeletion,
		"%s open %s after the pod's deletion, and nothing waits for %s, because no container has a preStop hook of conndrain: %s",
		numberAre(len(open), "session"), inSeconds(after), them, listed(open, nil))
}

// details are the figures beside the number of sessions that hold a pod.
func details(c conntrack.Counts) string {
	var all []string
	if c.Lost > 0 {
		all = append(all, fmt.Sprintf("%d of them lost from the connection tracking table", c.Lost))
	}
	if c.New > 0 {
		all = append(all, fmt.Sprintf("%d new during the drain", c.New))
	}
	if c.Idle > 0 {
		all = append(all, fmt.Sprintf("%d idle not waited for", c.Idle))
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}

// drained says that nothing holds it any more, what a hook that went before the others has
// cut, how many sessions are left to the application, and what another policy would have
// saved.
func (e events) drained(pod *corev1.Pod, c conntrack.Counts, parted lifecycle.Leaving, left int, waited, saved time.Duration) {
	text := "The last session has ended"
	switch {
	case c.Peak == 0:
		text = "There was no session"
	case left > 0:
		text = "The last session that was waited for has ended"
	}
	if c.New > 0 {
		text += fmt.Sprintf(", %d began during the drain", c.New)
	}
	if c.Idle > 0 {
		text += fmt.Sprintf(", %d idle left out", c.Idle)
	}
	if left > 0 {
		text += fmt.Sprintf(", %s left to the application", number(left, "session"))
	}
	kind := corev1.EventTypeNormal
	if parted.Cut > 0 {
		kind = corev1.EventTypeWarning
		text += "; " + inFlight(parted)
	}
	e.recorder.Eventf(pod, kind, reasonDrained, "%s; released %s after the first hook began%s", text, inSeconds(waited), earlier(saved))
}

// withdrawn says that a pod is sent nothing new, which is all that it waited for.
func (e events) withdrawn(pod *corev1.Pod, c conntrack.Counts, waited time.Duration) {
	text := "No new traffic is sent to the pod"
	if c.Known && c.Blocking() > 0 {
		text += fmt.Sprintf(", %s left to the application", number(c.Blocking(), "session"))
	}
	e.recorder.Eventf(pod, corev1.EventTypeNormal, reasonDrained, "%s; released %s after the first hook began", text, inSeconds(waited))
}

// partial says which containers end at once, although the pod is held.
func (e events) partial(pod *corev1.Pod, names []string) {
	e.recorder.Eventf(pod, corev1.EventTypeWarning, reasonPartialHook,
		"Not held, because it has no preStop hook of conndrain: %s. It gets SIGTERM at once; add the hook to every container that sessions go through",
		strings.Join(names, ", "))
}

// malformed says which annotation means nothing.
func (e events) malformed(pod *corev1.Pod, m lifecycle.Malformed) {
	e.recorder.Event(pod, corev1.EventTypeWarning, reasonMalformed, m.String())
}

// deaf says, on the node, that hooks or scrapes find nobody at an address.
func (e events) deaf(node, address string, why error) {
	// The kubelet's Events on its Node have the name for a UID, and kubectl describe
	// looks for that.
	ref := &corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node, UID: types.UID(node)}
	e.recorder.Eventf(ref, corev1.EventTypeWarning, reasonDeaf,
		"conndrain-node cannot listen on %s and tries again: %v. End what has the port, or set another one for all of conndrain", address, why)
}

// expired says what was cut, on how many of those that hold for their requests one was in
// flight, and of how many nobody could tell, and what a hook that went before the others had
// cut.
func (e events) expired(pod *corev1.Pod, c conntrack.Counts, f flight, parted lifecycle.Leaving, left []conntrack.Session, waited time.Duration, begun time.Time, why error, saved time.Duration) {
	flying, early := "", ""
	if f.unsettled {
		early = ", before settle and min-delay were over"
	}
	if f.requests > 0 {
		flying = fmt.Sprintf(", %d with a request in flight", f.requests)
	}
	if f.untold.sessions > 0 {
		least := ""
		if f.untold.least {
			least = "at least "
		}
		flying += fmt.Sprintf(", of %s%d nobody could tell whether a request was in flight", least, f.untold.sessions)
	}
	text := fmt.Sprintf("The time was up after %s%s: %s cut, %d of them active%s%s: %s",
		inSeconds(waited), early, number(c.Blocking(), "session"), c.Active, flying, details(c), peers(left, begun))
	if !c.Known {
		text = fmt.Sprintf("The time was up after %s, and what was cut is unknown: the sessions could not be read", inSeconds(waited))
		if why != nil {
			text += ": " + why.Error()
		}
	} else if c.Blocking() == 0 {
		text = fmt.Sprintf("The time was up after %s, while a connection was being made", inSeconds(waited))
	}
	if parted.Cut > 0 {
		text += "; " + inFlight(parted)
	}
	e.recorder.Event(pod, corev1.EventTypeWarning, reasonDrainExpired, text+earlier(saved))
}

// released says who ended the drain.
func (e events) released(pod *corev1.Pod, c conntrack.Counts, parted lifecycle.Leaving, left []conntrack.Session, waited time.Duration, begun time.Time, by, why string) {
	text := fmt.Sprintf("Released by %s after %s", by, inSeconds(waited))
	if why != "" {
		text += fmt.Sprintf(" (%s)", why)
	}
	switch {
	case !c.Known:
		text += "; whether sessions were open is unknown"
	case c.Blocking() == 0:
		text += " with no session left"
	default:
		text += fmt.Sprintf(" with %s left%s: %s", number(c.Blocking(), "session"), details(c), peers(left, begun))
	}
	if parted.Cut > 0 {
		text += "; " + inFlight(parted)
	}
	e.recorder.Event(pod, corev1.EventTypeNormal, reasonDrainReleased, text)
}

// peers names the first of the sessions, which come with those of unknown age
// first and then the oldest.
func peers(left []conntrack.Session, begun time.Time) string {
	return listed(left, func(s conntrack.Session) string {
		switch {
		case s.Probe:
			return " (probe)"
		case isNew(s, begun):
			return " (new)"
		}
		return " (older than the drain)"
	})
}

func listed(left []conntrack.Session, age func(conntrack.Session) string) string {
	var names []string
	for _, s := range left {
		if len(names) == maxPeers {
			names = append(names, fmt.Sprintf("and %d more", len(left)-maxPeers))
			break
		}
		name := fmt.Sprintf("%s to port %d/%s", s.Client, s.Server.Port(), s.Protocol)
		if age != nil {
			name += age(s)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

func number(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func numberAre(n int, what string) string {
	if n == 1 {
		return number(n, what) + " was"
	}
	return number(n, what) + " were"
}

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", max(0, d).Seconds()) }
