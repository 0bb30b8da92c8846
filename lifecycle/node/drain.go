package node

import (
	"cmp"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// drain is one pod's termination, whatever number of hooks ask for it. Its methods
// are safe for concurrent use.
type drain struct {
	policy   lifecycle.Policy // where the pod does not say
	maxDrain time.Duration
	// inherited says that the pod was terminating before this helper began to look,
	// and that its hook did not tell when it started.
	inherited bool
	// askAfter is when the API may be asked for the pod.
	askAfter time.Time
	log      *slog.Logger

	// wake receives when the pod or the first start has changed.
	wake chan struct{}
	// released is closed when the hooks may return.
	released chan struct{}

	// sockets are those of the pod, as far as its hooks tell, judges those of the hooks
	// that can tell requests.
	sockets sockets
	judges  judges

	mu       sync.Mutex
	pod      *corev1.Pod
	settings lifecycle.Settings
	// untold are the malformed annotations that nobody was told of yet, told those
	// that somebody was.
	untold []lifecycle.Malformed
	told   map[lifecycle.Malformed]struct{}
	// window bounds the grace period while the node is shutting down; otherwise 0.
	window time.Duration
	// first is when the pod's first hook started.
	first time.Time
	// confirmed is set once it is as certain as it gets that the pod terminates:
	// from then on the deadline stands, and moves only to an earlier moment.
	confirmed bool
	deadline  time.Time
	gone      bool
	state     state
	// end is when the drain was released, and stays whether the pod was known then to
	// be on its way out.
	end time.Time
	// asked is when the API was last asked for the pod: a no says nothing of hooks that
	// began later.
	asked time.Time
	stays bool
	// by and why are set once a person has ended the drain.
	by, why string
	// reported is the latest look at the pod's own sockets that no watch has had yet.
	reported *conntrack.SocketReport

	// quiet is what hooks may end their wait by, quietSince when that changed last, and
	// lastWord the one of a hook that has done so.
	quiet      *lifecycle.WhenQuiet
	quietSince time.Time
	lastWord   *lifecycle.Leaving
	notice     notice
	// news is closed when held requests may have something to be told, and replaced.
	news chan struct{}

	// fallback is the longest that a hook sleeps where nobody tells it about sessions.
	fallback time.Duration

	sight sight
	free  freed
}

// state is what a drain has come to.
type state struct {
	phase  lifecycle.Phase
	reason lifecycle.Reason
	counts conntrack.Counts
	// cut is what was cut, where the deadline came first.
	cut *int
}

func newDrain(pod *corev1.Pod, first time.Time, inherited bool, c Config) *drain {
	d := &drain{
		policy: c.Policy, maxDrain: c.MaxDrain, inherited: inherited,
		log:  c.Logger.With("pod", pod.Namespace+"/"+pod.Name),
		wake: make(chan struct{}, 1), released: make(chan struct{}), news: make(chan struct{}),
		pod: pod, first: first, state: state{phase: lifecycle.Serving},
		told: make(map[lifecycle.Malformed]struct{}),
	}
	d.readSettings()
	return d
}

// settingsNow are what the pod asks for now.
func (d *drain) settingsNow() lifecycle.Settings {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settings
}

// asks notes that the API is asked for the pod.
func (d *drain) asks(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = now
}

// started takes in when a hook of the pod says that it started.
func (d *drain) started(at time.Time) {
	d.mu.Lock()
	if at.Before(d.first) {
		d.first = at
		d.setDeadline()
	}
	d.mu.Unlock()
	d.notify()
}

// changed takes in the pod as it is now; gone says that it was deleted.
func (d *drain) changed(pod *corev1.Pod, gone bool) {
	d.mu.Lock()
	switch {
	case gone:
		d.gone = true
	case d.pod.DeletionTimestamp != nil && pod.DeletionTimestamp == nil:
		// The watch lags behind what the API has said.
	default:
		d.pod = pod
		d.readSettings()
		d.setDeadline()
	}
	d.mu.Unlock()
	d.notify()
}

// confirm notes that the pod terminates; its grace period counts from here on.
func (d *drain) confirm(pod *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// The watch may have told of a shorter grace while the API was asked.
	if d.pod.DeletionTimestamp == nil || graceOf(d.pod) >= graceOf(pod) {
		d.pod = pod
	}
	d.confirmed = true
	d.readSettings()
	d.setDeadline()
}

// stopping notes that the pod terminates because its node does, which leaves it the
// window at most.
func (d *drain) stopping(window time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.confirmed = true
	d.window = window
	d.setDeadline()
}

// readSettings takes in the pod's annotations: whoever changes them while the pod
// is held, to let it go or to hold it for something else, is heard. The mutex is
// held.
func (d *drain) readSettings() {
	var malformed []lifecycle.Malformed
	d.settings, malformed = lifecycle.ParseAnnotations(d.pod.Annotations, named(d.pod))
	for _, m := range malformed {
		d.tell(m)
	}
}

// maxTold is how many malformed annotations are told of.
const maxTold = 16

// tell puts a malformed annotation on the list of what has to be told, once. The
// mutex is held.
func (d *drain) tell(m lifecycle.Malformed) {
	if _, told := d.told[m]; told || len(d.told) >= maxTold {
		return
	}
	d.told[m] = struct{}{}
	d.untold = append(d.untold, m)
}

// isGone says whether the pod was deleted.
func (d *drain) isGone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gone
}

// toTell returns what somebody has to be told of and was not yet.
func (d *drain) toTell() []lifecycle.Malformed {
	d.mu.Lock()
	defer d.mu.Unlock()
	untold := d.untold
	d.untold = nil
	return untold
}

// release ends the drain for a person, and says why where that is given. The hooks
// return as soon as the drain has looked up, within a second. Only the first call
// does something, and none does after the end.
func (d *drain) release(by, why string) {
	d.mu.Lock()
	if d.by == "" && d.state.phase != lifecycle.Released {
		d.by, d.why = cmp.Or(by, "somebody"), why
	}
	d.mu.Unlock()
	d.notify()
}

// report takes in a look at the pod's own sockets. Of several that come before the
// drain can use one, the latest counts; after its end none does.
func (d *drain) report(r conntrack.SocketReport) {
	d.mu.Lock()
	if d.state.phase == lifecycle.Released {
		d.mu.Unlock()
		return
	}
	if d.reported == nil || r.At.After(d.reported.At) {
		d.reported = &r
	}
	d.mu.Unlock()
	d.notify()
}

// reports returns the look that came since the last call, or nil.
func (d *drain) reports() *conntrack.SocketReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.reported
	d.reported = nil
	return r
}

// over says whether the drain has ended and says nothing to a hook that started at
// the given moment: one that started before the end hears of it, whenever it asks. A
// pod that is known to be on its way out stays released, because its hook may be run
// again; one that was only taken for that may serve on, and then its next termination
// is another drain. The zero time asks whether it is over for everybody.
func (d *drain) over(started time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.phase == lifecycle.Released && !d.stays && (started.IsZero() || started.After(d.basis()))
}

// basis is until when a hook may have begun that the end of the drain is for. The mutex
// is held.
func (d *drain) basis() time.Time {
	if d.state.reason == lifecycle.NotTerminating && !d.asked.IsZero() {
		return d.asked
	}
	return d.end
}

// setDeadline moves the deadline to an earlier moment, if there is reason to. The
// mutex is held.
func (d *drain) setDeadline() {
	if !d.confirmed {
		return
	}
	grace := graceOf(d.pod)
	if d.window > 0 {
		grace = min(grace, d.window)
	}
	budget, ok := d.settings.Budget(grace, d.maxDrain)
	if !ok {
		d.tell(lifecycle.Malformed{
			Annotation: lifecycle.ReserveAnnotation, Value: strings.TrimSpace(d.pod.Annotations[lifecycle.ReserveAnnotation]),
			Why: fmt.Sprintf("leaves nothing of the %g s that the pod has to end, so that %g s are kept as usual: use less than %[1]g s",
				grace.Seconds(), lifecycle.Reserve(grace).Seconds()),
		})
	}
	d.tellAllLong(budget)
	deadline := d.first.Add(budget)
	if d.deadline.IsZero() || deadline.Before(d.deadline) {
		d.deadline = deadline
	}
}

func (d *drain) notify() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// become publishes what was decided, and says whether the phase is another one.
func (d *drain) become(s state) bool {
	d.mu.Lock()
	before := d.state.phase
	d.state = s
	if s.phase == lifecycle.Released && d.end.IsZero() {
		d.reported = nil
		d.judges.close()
		d.end, d.stays = time.Now(), d.pod.DeletionTimestamp != nil && lasts(s.reason)
	}
	d.mu.Unlock()
	if before == s.phase {
		return false
	}
	log := d.log.With("from", before.String(), "to", s.phase.String(), "reason", string(s.reason), "known", s.counts.Known)
	if s.counts.Known { // or else a zero means nothing
		log = log.With("open", s.counts.Open, "lost", s.counts.Lost)
	}
	log.Info("phase")
	if s.phase == lifecycle.Released {
		close(d.released)
	}
	return true
}

// name is that of the pod.
func (d *drain) name() types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	return types.NamespacedName{Namespace: d.pod.Namespace, Name: d.pod.Name}
}

// waited is how long ago the pod's first hook started.
func (d *drain) waited(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return now.Sub(d.first)
}

// releasedBy says who ended the drain, and why if that was given.
func (d *drain) releasedBy() (by, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.by, d.why
}

// now returns what the drain has come to.
func (d *drain) now() state {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}
