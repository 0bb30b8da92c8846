package node

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// tally counts what has happened.
type tally struct {
	duration *prometheus.HistogramVec
	cuts     *prometheus.CounterVec
	late     prometheus.Counter
	delay    prometheus.Histogram
	missed   prometheus.Counter
	observed *prometheus.CounterVec
	atDelete prometheus.Counter
}

func newTally(r prometheus.Registerer) *tally {
	t := &tally{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "conndrain_drain_duration_seconds",
			Help:    "Time from the first hook's start to its release, by reason.",
			Buckets: []float64{1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600, 1800, 3600},
		}, []string{"reason"}),
		cuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "conndrain_sessions_cut_total",
			Help: "Sessions that still blocked when their pod was released at its deadline, by whether a packet came in their last 5 s or, under requests, a request was in flight; as active also requests that were in flight at a release between requests, of the pod or of one of its containers.",
		}, []string{"activity"}),
		late: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "conndrain_new_sessions_after_withdrawal_total",
			Help: "Sessions that began when no EndpointSlice sent new traffic to their pod any more.",
		}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "conndrain_release_delay_seconds",
			Help: "Time from when a drained pod could go to the first answer that let its hook return: from its last session's end, " +
				"as connection tracking showed it, or where they came later from the end of the withdrawal, of settle and of min-delay.",
			Buckets: []float64{.005, .01, .025, .05, .1, .15, .25, .5, 1, 2.5, 5},
		}),
		missed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "conndrain_missed_hooks_total",
			Help: "Pods that had a hook of conndrain and were deleted and gone without a call of it, while this helper looked on.",
		}),
		observed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "conndrain_observed_deletions_total",
			Help: "Deleted pods without a hook, with --observe: with sessions that were open then, with none, not in a Service, gone before there was a look, or unknown because it failed.",
		}, []string{"result"}),
		atDelete: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "conndrain_sessions_at_deletion_total",
			Help: "Sessions that were open when pods without a hook were deleted, with --observe.",
		}),
	}
	for _, activity := range []string{"active", "quiet"} {
		t.cuts.WithLabelValues(activity)
	}
	for _, result := range observations {
		t.observed.WithLabelValues(string(result))
	}
	r.MustRegister(t.duration, t.cuts, t.late, t.delay, t.missed, t.observed, t.atDelete)
	return t
}

func (t *tally) released(reason lifecycle.Reason, waited time.Duration) {
	t.duration.WithLabelValues(string(reason)).Observe(waited.Seconds())
}

func (t *tally) cut(c conntrack.Counts) {
	t.cuts.WithLabelValues("active").Add(float64(c.Active))
	t.cuts.WithLabelValues("quiet").Add(float64(c.Blocking() - c.Active))
}

// parted counts what a hook that ended by itself has surely cut.
func (t *tally) parted(l lifecycle.Leaving) {
	t.cuts.WithLabelValues("active").Add(float64(l.Cut - l.Untold))
}

// gauges show what is now, at each scrape. A series of a pod is there only while
// the pod is held, so that there are never more of them than pods that terminate.
type gauges struct {
	list func() []*drain
	// stats are those of all readers.
	stats    func() []conntrack.Stats
	disabled bool
	version  string
}

var (
	drainsDesc = prometheus.NewDesc("conndrain_drains",
		"Pods of this node that are terminating, by the phase of their drain.", []string{"phase"}, nil)
	sessionsDesc = prometheus.NewDesc("conndrain_sessions",
		"Sessions of the pods that are draining, by state.", []string{"state"}, nil)
	podSessionsDesc = prometheus.NewDesc("conndrain_pod_sessions",
		"Sessions of a pod that is held now, by state; not there while they are unknown.", []string{"namespace", "pod", "state"}, nil)
	snapshotsDesc = prometheus.NewDesc("conndrain_snapshot_duration_seconds",
		"Time that whole looks at the connection tracking table took.", nil, nil)
	lossesDesc = prometheus.NewDesc("conndrain_events_lost_total",
		"How often the kernel said that it had to drop events of connection tracking; each time a new snapshot follows.", nil, nil)
	disabledDesc = prometheus.NewDesc("conndrain_disabled",
		"1 if CONNDRAIN_DISABLE makes every hook only sleep.", nil, nil)
	buildDesc = prometheus.NewDesc("conndrain_build_info",
		"1, with the version of the helper.", []string{"version"}, nil)
)

// Describe implements prometheus.Collector.
func (g gauges) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		drainsDesc, sessionsDesc, podSessionsDesc, snapshotsDesc, lossesDesc, disabledDesc, buildDesc,
	} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(c chan<- prometheus.Metric) {
	g.collectDrains(c)
	var took time.Duration
	var taken, losses int
	for _, s := range g.stats() {
		took, taken, losses = took+s.SnapshotsTook, taken+s.Snapshots, losses+s.Losses
	}
	c <- prometheus.MustNewConstSummary(snapshotsDesc, uint64(taken), took.Seconds(), nil)
	c <- prometheus.MustNewConstMetric(lossesDesc, prometheus.CounterValue, float64(losses))
	disabled := 0.0
	if g.disabled {
		disabled = 1
	}
	c <- prometheus.MustNewConstMetric(disabledDesc, prometheus.GaugeValue, disabled)
	c <- prometheus.MustNewConstMetric(buildDesc, prometheus.GaugeValue, 1, g.version)
}

func (g gauges) collectDrains(c chan<- prometheus.Metric) {
	phases := make(map[lifecycle.Phase]int)
	var open, idle, lost, between int
	for _, d := range g.list() {
		s := d.now()
		phases[s.phase]++
		if s.phase == lifecycle.Released {
			continue
		}
		rest := min(s.counts.Open, d.sight.restful(d.judges.classes(time.Now())))
		open, between, idle, lost = open+s.counts.Open-rest, between+rest, idle+s.counts.Idle, lost+s.counts.Lost
		if s.phase == lifecycle.Serving || !s.counts.Known {
			continue
		}
		name := d.name()
		inStates(s.counts.Open-rest, rest, s.counts.Idle, s.counts.Lost, func(n int, state string) {
			c <- prometheus.MustNewConstMetric(podSessionsDesc, prometheus.GaugeValue, float64(n), name.Namespace, name.Name, state)
		})
	}
	for p := lifecycle.Serving; p <= lifecycle.Released; p++ {
		c <- prometheus.MustNewConstMetric(drainsDesc, prometheus.GaugeValue, float64(phases[p]), p.String())
	}
	inStates(open, between, idle, lost, func(n int, state string) {
		c <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(n), state)
	})
}

// stateBetween is that of open sessions without a request in flight.
const stateBetween = "between_requests"

func inStates(open, between, idle, lost int, f func(n int, state string)) {
	f(open, conntrack.Open.String())
	f(between, stateBetween)
	f(idle, conntrack.Idle.String())
	f(lost, conntrack.Lost.String())
}

// freed is when a drained pod could go, and whether that was told yet. It is
// safe for concurrent use.
type freed struct {
	mu  sync.Mutex
	due time.Time
}

// at notes when the pod could go; nothing is measured of one that never had a
// session.
func (r *freed) at(due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = due
}

// answered returns how long ago the pod could go, to the first that asks after it
// could.
func (r *freed) answered(now time.Time) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due.IsZero() {
		return 0, false
	}
	due := r.due
	r.due = time.Time{}
	return max(0, now.Sub(due)), true
}
