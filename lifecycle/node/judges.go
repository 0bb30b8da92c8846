package node

import (
	"slices"
	"sync"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// judges are those hooks of a pod that can tell whether a request is in flight, and
// what they say. All see the same connections, so the latest word is the pod's, and one
// that can see will do. They are safe for concurrent use.
type judges struct {
	mu sync.Mutex
	// here is how many of them have a request here, contact when one was last heard of;
	// was is set once one was.
	here    int
	contact time.Time
	was     bool
	// seeing is how many of those here can see, sighted when one was last heard of.
	seeing  int
	sighted time.Time
	// old is set once a hook has asked that cannot, blind why one that could cannot.
	old   bool
	blind string
	// report is what those that can see last said, told when; closed is set when nobody
	// reads it any more.
	report *lifecycle.RequestReport
	told   time.Time
	closed bool
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
	blind := ""
	if r.Requests != nil {
		blind = clip(r.Requests.Blind)
		if ago := r.Requests.QuietAgoSeconds; ago != nil {
			j.quiet = later(j.quiet, arrived.Add(-lifecycle.Seconds(*ago)))
		}
	}
	if r.Sockets == nil && blind == "" {
		blind = "the kernel does not list its sockets"
	}
	sees := blind == ""
	if sees {
		j.seeing++
		j.sighted = arrived
		if r.Requests != nil && !j.closed {
			j.report, j.told = bounded(r.Requests), arrived
		}
	} else {
		j.blind = blind
	}
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.here--
		j.contact = time.Now()
		if sees {
			j.seeing--
			j.sighted = j.contact
		}
	}
}

// bounded is what anybody reads of a report, and no more than a hook says: it is kept for
// as long as its pod is held, and who sends it is not trusted.
func bounded(r *lifecycle.RequestReport) *lifecycle.RequestReport {
	b := &lifecycle.RequestReport{Classes: make(map[string]lifecycle.PeerSet), Counts: make(map[string]int)}
	room := lifecycle.MaxClassedPeers
	for _, class := range classWords {
		if n, told := r.Counts[class]; told {
			b.Counts[class] = n
		}
		peers := r.Classes[class]
		if len(peers) > room {
			peers = some(peers, room)
		}
		if len(peers) > 0 {
			b.Classes[class] = peers
			room -= len(peers)
		}
	}
	return b
}

// some are n of the clients.
func some(peers lifecycle.PeerSet, n int) lifecycle.PeerSet {
	few := make(lifecycle.PeerSet, n)
	for p := range peers {
		if len(few) == n {
			break
		}
		few.Add(p)
	}
	return few
}

// close lets go of what nobody reads any more.
func (j *judges) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.report, j.closed = nil, true
}

// sees says whether one that can see is here, or may come back. The mutex is held.
func (j *judges) sees(now time.Time) bool {
	return j.seeing > 0 || !j.sighted.IsZero() && now.Sub(j.sighted) < reporterPatience
}

// asking says whether one of them has a request here.
func (j *judges) asking() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.here > 0
}

// present says whether one of them is here, or may come back.
func (j *judges) present(now time.Time) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.comes(now)
}

// comes is present. The mutex is held.
func (j *judges) comes(now time.Time) bool {
	return j.here > 0 || !j.contact.IsZero() && now.Sub(j.contact) < reporterPatience
}

// gone notes that one of them has ended its wait.
func (j *judges) gone() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.here == 0 {
		j.contact = time.Time{}
	}
	if j.seeing == 0 {
		j.sighted = time.Time{}
	}
}

// excuse gives one that was heard of its whole patience anew.
func (j *judges) excuse(now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.contact.IsZero() {
		j.contact = now
	}
	if !j.sighted.IsZero() {
		j.sighted = now
	}
}

// Why a pod is held for its sessions although it asks for less.
const (
	whyHostNetwork = "on the node's network its connections are not told from the others"
	whyOldHook     = "its hook is too old to tell requests: use the present release of prestop"
	whyKilled      = "the hook that could tell requests is gone, and may have let its container go"
	whyTooMany     = "it has too many connections for that"
)

// can says whether one of them can tell now, and if not, why; nothing where no hook
// was heard of.
func (j *judges) can(now time.Time) (_ bool, why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.sees(now):
		return true, ""
	case j.comes(now):
		return false, "its hook cannot tell requests: " + j.blind
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
	if j.report == nil || !j.sees(now) || now.Sub(j.told) >= lifecycle.MaxWait+reporterPatience {
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
