package node

import (
	"slices"
	"sync"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// judges are those hooks of a pod that can tell whether a request is in flight, and
// what they say. All see the same connections, so the latest word is the pod's. They
// are safe for concurrent use.
type judges struct {
	mu sync.Mutex
	// here is how many of them have a request here, contact when one was last heard of;
	// was is set once one was.
	here    int
	contact time.Time
	was     bool
	// old is set once a hook has asked that cannot, blind why one that could cannot.
	old   bool
	blind string
	// report is what they last said, told when.
	report *lifecycle.RequestReport
	told   time.Time
	// quiet is the latest moment without a request.
	quiet time.Time
}

// hear takes in what a hook says with a request. The result has to be called when that
// is answered.
func (j *judges) hear(r lifecycle.DrainRequest, arrived time.Time) (leave func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Contains(r.Can, lifecycle.CanJudge) {
		j.old = true
		return func() {}
	}
	j.here++
	j.contact, j.was = arrived, true
	j.blind = ""
	if r.Requests != nil {
		j.report, j.told, j.blind = r.Requests, arrived, r.Requests.Blind
		if ago := r.Requests.QuietAgoSeconds; ago != nil {
			j.quiet = later(j.quiet, arrived.Add(-lifecycle.Seconds(*ago)))
		}
	}
	if r.Sockets == nil && j.blind == "" {
		j.blind = "the kernel does not list its sockets"
	}
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.here--
		j.contact = time.Now()
	}
}

// gone notes that one of them has ended its wait.
func (j *judges) gone() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.here == 0 {
		j.contact = time.Time{}
	}
}

// excuse gives one that was heard of its whole patience anew.
func (j *judges) excuse(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.contact.IsZero() {
		j.contact = now
	}
}

// Why a pod is held for its sessions although it asks for less.
const (
	whyHostNetwork = "on the node's network its connections are not told from the others"
	whyOldHook     = "its hook is too old to tell requests: use the present release of prestop"
	whyKilled      = "the hook that could tell requests is gone"
	whyTooMany     = "it has too many connections for that"
)

// can says whether one of them can tell now, and if not, why; nothing where no hook
// was heard of.
func (j *judges) can(now time.Time) (_ bool, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	present := j.here > 0 || !j.contact.IsZero() && now.Sub(j.contact) < reporterPatience
	switch {
	case present && j.blind != "":
		return false, "its hook cannot tell requests: " + clip(j.blind)
	case present:
		return true, ""
	case j.was:
		return false, whyKilled
	case j.old:
		return false, whyOldHook
	}
	return false, ""
}

// quietAt is the latest moment without a request, zero if there was none.
func (j *judges) quietAt() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.quiet
}

// classes are what the connections are doing, nil where nobody has told that lately.
func (j *judges) classes(now time.Time) *lifecycle.RequestReport {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.report == nil || j.blind != "" || now.Sub(j.told) >= lifecycle.MaxWait+reporterPatience {
		return nil
	}
	return j.report
}

// judged says whether somebody can tell the pod's requests, and if not, why.
func (v *vigil) judged(now time.Time) (bool, string) {
	if v.current().Spec.HostNetwork {
		return false, whyHostNetwork
	}
	return v.judges.can(now)
}
