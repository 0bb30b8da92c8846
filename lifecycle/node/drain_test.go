package node

import (
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/lifecycle"
)

func podWithGrace(spec, deletion int64) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &spec}}
	if deletion >= 0 {
		now := metav1.Now()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &deletion
	}
	return pod
}

func TestDeadline(t *testing.T) {
	start := time.Now()
	for _, tc := range []struct {
		name string
		max  time.Duration
		do   func(d *drain)
		want float64 // seconds after the start
	}{
		{"the deletion's grace, not the spec's", 0, func(d *drain) { d.confirm(podWithGrace(900, 10)) }, 8},
		{"a deletion with a longer grace", 0, func(d *drain) { d.confirm(podWithGrace(30, 60)) }, 50},
		{"no deletion seen", 0, func(d *drain) { d.confirm(podWithGrace(900, -1)) }, 890},
		{"a cap", time.Minute, func(d *drain) { d.confirm(podWithGrace(900, 900)) }, 60},
		{"shorter later", 0, func(d *drain) {
			d.confirm(podWithGrace(900, 900))
			d.changed(podWithGrace(900, 60), false)
		}, 50},
		{"longer later", 0, func(d *drain) {
			d.confirm(podWithGrace(900, 60))
			d.changed(podWithGrace(900, 900), false)
		}, 50},
		{"a watch that lags behind the deletion", 0, func(d *drain) {
			d.confirm(podWithGrace(30, 60))
			d.changed(podWithGrace(30, -1), false)
		}, 50},
		{"a change before it is certain", 0, func(d *drain) {
			d.changed(podWithGrace(5, -1), false)
			d.confirm(podWithGrace(30, 60))
		}, 50},
		{"a hook that started earlier", 0, func(d *drain) {
			d.confirm(podWithGrace(900, 60))
			d.started(start.Add(-20 * time.Second))
		}, 30},
		{"a hook that started later", 0, func(d *drain) {
			d.confirm(podWithGrace(900, 60))
			d.started(start.Add(20 * time.Second))
		}, 50},
		{"no time to wait in", 0, func(d *drain) { d.confirm(podWithGrace(900, 1)) }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDrain(podWithGrace(30, -1), start, false, Config{MaxDrain: tc.max, Logger: slog.New(slog.DiscardHandler)})
			if a := d.answer(start); a.RemainingSeconds != nil {
				t.Errorf("%v seconds remain before it is certain that the pod terminates", *a.RemainingSeconds)
			}
			tc.do(d)
			if got := d.deadline.Sub(start).Seconds(); got != tc.want {
				t.Errorf("deadline %v seconds after the start, want %v", got, tc.want)
			}
			if left, ok := d.answer(start).Remaining(); !ok || left != lifecycle.Seconds(max(0, tc.want)) {
				t.Errorf("%s remain, want %v s", left, tc.want)
			}
		})
	}
}

// What the API said before a shorter delete is out of date when it arrives.
func TestConfirmKeepsAShorterGrace(t *testing.T) {
	start := time.Now()
	d := newDrain(podWithGrace(900, -1), start, false, Config{Logger: slog.New(slog.DiscardHandler)})
	deleted := func(grace int64) *corev1.Pod {
		p := podWithGrace(900, grace)
		p.DeletionTimestamp = &metav1.Time{Time: start}
		return p
	}
	d.changed(deleted(60), false)
	d.confirm(deleted(900))
	if got := d.deadline.Sub(start); got != 50*time.Second {
		t.Errorf("the deadline is %s after the start, want 50s", got)
	}
}

func TestClip(t *testing.T) {
	if got := clip(" a\x1b[31m\n b\t"); got != "a [31m b" {
		t.Errorf("%q", got)
	}
}
