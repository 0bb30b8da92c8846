package node

import (
	"sync"
	"time"
)

// kernelEvery is how long an answer of the kernel is believed when somebody asks
// whether the helper is ready.
const kernelEvery = 10 * time.Second

// readiness says whether the helper can do what it is for. It is safe for
// concurrent use.
type readiness struct {
	synced func() bool
	// deaf says what cannot be listened on.
	deaf func() error
	// kernel asks whether connection tracking can be read; nil where it need not be.
	kernel func() error
	now    func() time.Time

	mu     sync.Mutex
	asked  time.Time
	answer error
}

// faults are the reasons for which the helper is not ready, in the words that a
// person reads at /readyz. There are none when it is.
func (r *readiness) faults() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	if !r.synced() {
		all = append(all, "the pods of this node are not known yet: the API has not answered their list")
	}
	if err := r.deaf(); err != nil {
		all = append(all, err.Error())
	}
	if r.kernel == nil {
		return all
	}
	// Modules can be loaded and unloaded while the helper runs.
	if now := r.now(); r.asked.IsZero() || now.Sub(r.asked) >= kernelEvery {
		r.answer, r.asked = r.kernel(), now
	}
	if r.answer != nil {
		all = append(all, "sessions cannot be read: "+r.answer.Error())
	}
	return all
}
