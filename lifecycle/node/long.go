package node

import (
	"fmt"
	"strings"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// tellAllLong puts the times that are as long as the pod can be held on the list of what
// has to be told: they count as they stand. The mutex is held.
func (d *drain) tellAllLong(budget time.Duration) {
	s := d.settings
	all := fmt.Sprintf("takes all of the %g s that the pod can be held, whatever its sessions do: use less", budget.Seconds())
	d.tellLong(lifecycle.SettleAnnotation, s.Settle, budget, all)
	d.tellLong(lifecycle.MinDelayAnnotation, s.MinDelay, budget, all)
	if !s.Until.Any(lifecycle.Until.OfRequests) {
		return
	}
	if s.IdleAfter == 0 || s.IdleAfter >= budget { // or else that is what bounds the silence
		d.tellLong(lifecycle.QuietAnnotation, s.Quiet, budget, fmt.Sprintf("is no less than the %g s that the pod can be held, "+
			"so that it releases only what was silent before: use less, or a longer grace period", budget.Seconds()))
	}
	p := s.Over(d.policy)
	left := budget - max(min(p.Settle, p.SettleMax), p.MinDelay)
	d.tellLong(lifecycle.BusyAfterAnnotation, s.BusyAfter, left, fmt.Sprintf("is no less than the %g s that settle and min-delay leave of the %g s that the pod can be held, "+
		"so that it never releases anything: use less, or a longer grace period", left.Seconds(), budget.Seconds()))
}

// tellLong puts a time that is no shorter than what there is of it on the list, and why
// that is wrong. The mutex is held.
func (d *drain) tellLong(annotation string, asked *time.Duration, left time.Duration, why string) {
	if asked == nil || left <= 0 || *asked < left {
		return
	}
	d.tell(lifecycle.Malformed{Annotation: annotation, Value: strings.TrimSpace(d.pod.Annotations[annotation]), Why: why})
}
