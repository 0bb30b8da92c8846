package node

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conndrain/conndrain/lifecycle"
)

// drains are those of the node's pods, one for each pod UID, so that a pod that
// takes over a name or an address takes over nothing else. They are safe for
// concurrent use.
type drains struct {
	config Config
	// drain does the work of one, until it is released or ctx ends.
	drain func(ctx context.Context, d *drain)

	mu    sync.Mutex
	byUID map[types.UID]*drain
	// asked is when the API was asked for a pod: a pod that is not terminating can
	// ask again and again.
	asked   map[types.UID]time.Time
	running sync.WaitGroup
	closed  bool
}

// askPause is how often the API is asked for one pod's sake at the most.
const askPause = time.Second

func newDrains(c Config, work func(context.Context, *drain)) *drains {
	return &drains{config: c, drain: work, byUID: make(map[types.UID]*drain), asked: make(map[types.UID]time.Time)}
}

// join returns the drain of a pod one of whose hooks started at the given moment,
// and begins it where there is none. inherited says that the hook did not tell when
// it started and may have been run before, fallback how long it sleeps where nobody
// can tell it about sessions (0: it does not say). It is nil when the helper ends.
func (all *drains) join(ctx context.Context, pod *corev1.Pod, started time.Time, inherited bool, fallback time.Duration) *drain {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		return nil
	}
	d := all.byUID[pod.UID]
	if d != nil && !d.over(started) {
		d.started(started)
		d.wantsSleep(fallback)
		return d
	}
	d = newDrain(pod, started, inherited, all.config)
	d.wantsSleep(fallback) // before its work begins: a hook takes an earlier deadline for good
	all.byUID[pod.UID] = d
	d.askAfter = later(time.Now(), all.asked[pod.UID].Add(askPause))
	all.asked[pod.UID] = d.askAfter
	all.running.Go(func() {
		all.drain(ctx, d)
		if d.now().reason == lifecycle.Cancelled {
			all.forget(pod.UID, d) // nobody tells the end of a pod that was gone before
		}
	})
	return d
}

// of returns the drain of a pod, or nil.
func (all *drains) of(uid types.UID) *drain {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.byUID[uid]
}

// changed takes in the pod as it is now.
func (all *drains) changed(pod *corev1.Pod, gone bool) {
	all.mu.Lock()
	d := all.byUID[pod.UID]
	if gone {
		delete(all.byUID, pod.UID)
		delete(all.asked, pod.UID)
	}
	all.mu.Unlock()
	if d != nil {
		d.changed(pod, gone)
	}
}

func (all *drains) forget(uid types.UID, d *drain) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byUID[uid] == d {
		delete(all.byUID, uid)
		delete(all.asked, uid)
	}
}

// list returns those of pods that end.
func (all *drains) list() []*drain {
	all.mu.Lock()
	defer all.mu.Unlock()
	list := make([]*drain, 0, len(all.byUID))
	for _, d := range all.byUID {
		if !d.over(time.Time{}) {
			list = append(list, d)
		}
	}
	return list
}

// close lets none begin any more and waits for those that run. Their context has
// to end for that.
func (all *drains) close() {
	all.mu.Lock()
	all.closed = true
	all.mu.Unlock()
	all.running.Wait()
}

// lasts says whether a pod that was released for this reason is on its way out.
func lasts(r lifecycle.Reason) bool {
	return r == lifecycle.Drained || r == lifecycle.Expired || r == lifecycle.ReleasedByUser || r == lifecycle.Disabled
}
