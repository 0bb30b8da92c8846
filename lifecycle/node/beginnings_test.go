package node

import (
	stdcmp "cmp"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBeginnings(t *testing.T) {
	type step struct {
		terminates, gone, calls bool
		phase                   corev1.PodPhase // if it is another one by then
	}
	serves, ends, gone, calls := step{}, step{terminates: true}, step{terminates: true, gone: true}, step{calls: true}
	for _, tc := range []struct {
		name  string
		hook  *corev1.Lifecycle
		phase corev1.PodPhase
		steps []step
		want  []string
	}{
		{"a hook that never calls", ourHook, corev1.PodRunning, []step{serves, ends, ends, gone}, []string{"missed"}},
		{
			"the kubelet says that it has ended before it is gone", ourHook, corev1.PodRunning,
			[]step{serves, ends, {terminates: true, phase: corev1.PodSucceeded}, {terminates: true, gone: true, phase: corev1.PodSucceeded}},
			[]string{"missed"},
		},
		{"a hook that calls", ourHook, corev1.PodRunning, []step{serves, ends, calls, ends, gone}, nil},
		{"a hook that calls before the watch tells", ourHook, corev1.PodRunning, []step{serves, calls, ends, gone}, nil},
		{"gone before the watch told of the deletion", ourHook, corev1.PodRunning, []step{serves, gone}, []string{"missed"}},
		{"a removal by force leaves the hook to run later", ourHook, corev1.PodRunning, []step{serves, {gone: true}}, nil},
		{"terminating before this helper began", ourHook, corev1.PodRunning, []step{ends, gone}, nil},
		{"one that has ended runs no hook", ourHook, corev1.PodSucceeded, []step{serves, ends, gone}, nil},
		{"one that has not begun runs no hook", ourHook, corev1.PodPending, []step{serves, ends, gone}, nil},
		{"without a hook", nil, corev1.PodRunning, []step{serves, serves, ends, ends, gone}, []string{"began"}},
		{"another's hook", otherHook, corev1.PodRunning, []step{serves, ends, gone}, []string{"began"}},
		{"without a hook, terminating before", nil, corev1.PodRunning, []step{ends, gone}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBeginnings(slog.New(slog.DiscardHandler))
			var got []string
			b.began = func(*corev1.Pod) { got = append(got, "began") }
			b.missed = func(*corev1.Pod) { got = append(got, "missed") }
			for _, s := range tc.steps {
				if s.calls {
					b.calls("u")
					continue
				}
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Status: corev1.PodStatus{Phase: stdcmp.Or(s.phase, tc.phase)}}
				pod.Spec.Containers = []corev1.Container{{Lifecycle: tc.hook}}
				if s.terminates {
					now := metav1.Now()
					pod.DeletionTimestamp = &now
				}
				b.changed(pod, s.gone)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("told of (-want +got):\n%s", diff)
			}
			if n := len(b.serving) + len(b.ending) + len(b.called); n != 0 {
				t.Errorf("%d of a pod that is gone are kept", n)
			}
		})
	}
}
