package node

import (
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// beginnings see pods begin to terminate, and whether their hook calls before they
// are gone. Of a pod that was terminating already when the helper began to look
// nothing is said: an earlier helper may have had its call. They are safe for
// concurrent use.
type beginnings struct {
	// began is called for each pod without a hook that begins to terminate, missed
	// for each with one that is gone without a call. Both are called without a lock.
	began, missed func(*corev1.Pod)
	log           *slog.Logger

	mu sync.Mutex
	// serving are the pods of the node that do not terminate, ending those that
	// were seen to begin, called those whose hook has asked.
	serving, called map[types.UID]struct{}
	ending          map[types.UID]bool // whether it ran when it began: a kubelet says Succeeded or Failed before it is gone
}

func newBeginnings(log *slog.Logger) *beginnings {
	return &beginnings{
		log: log, began: func(*corev1.Pod) {}, missed: func(*corev1.Pod) {},
		serving: make(map[types.UID]struct{}), ending: make(map[types.UID]bool), called: make(map[types.UID]struct{}),
	}
}

// calls notes that a hook of the pod has asked.
func (b *beginnings) calls(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.called[uid] = struct{}{}
}

// changed takes in the pod as it is now; gone says that it was deleted.
func (b *beginnings) changed(pod *corev1.Pod, gone bool) {
	b.mu.Lock()
	_, serving := b.serving[pod.UID]
	ran, ending := b.ending[pod.UID]
	_, called := b.called[pod.UID]
	terminates := pod.DeletionTimestamp != nil
	running := pod.Status.Phase == corev1.PodRunning // the hook of another one is not run
	if !ending {
		ran = running
	}
	switch {
	case gone:
		delete(b.serving, pod.UID)
		delete(b.ending, pod.UID)
		delete(b.called, pod.UID)
	case !terminates:
		b.serving[pod.UID] = struct{}{}
	case serving:
		delete(b.serving, pod.UID)
		b.ending[pod.UID] = running
	}
	b.mu.Unlock()

	switch {
	case !ran || !terminates:
	case gone && (serving || ending) && !called && HasHook(pod):
		b.log.Warn("a pod is gone whose hook of conndrain has never called: nothing of it was held for sessions by this helper",
			"pod", pod.Namespace+"/"+pod.Name)
		b.missed(pod)
	case !gone && serving && !HasHook(pod):
		b.began(pod)
	}
}
