package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// tally counts what has happened.
type tally struct {
	duration *prometheus.HistogramVec
	cuts     *prometheus.CounterVec
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
			Help: "Sessions that still blocked when their pod was released at its deadline, by whether a packet came in their last 5 s.",
		}, []string{"activity"}),
	}
	for _, activity := range []string{"active", "quiet"} {
		t.cuts.WithLabelValues(activity)
	}
	r.MustRegister(t.duration, t.cuts)
	return t
}

func (t *tally) released(reason lifecycle.Reason, waited time.Duration) {
	t.duration.WithLabelValues(string(reason)).Observe(waited.Seconds())
}

func (t *tally) cut(c conntrack.Counts) {
	t.cuts.WithLabelValues("active").Add(float64(c.Active))
	t.cuts.WithLabelValues("quiet").Add(float64(c.Blocking() - c.Active))
}

// gauges show what is now, at each scrape.
type gauges struct{ list func() []*drain }

var (
	drainsDesc = prometheus.NewDesc("conndrain_drains",
		"Pods of this node that are terminating, by the phase of their drain.", []string{"phase"}, nil)
	sessionsDesc = prometheus.NewDesc("conndrain_sessions",
		"Sessions of the pods that are draining, by state.", []string{"state"}, nil)
)

// Describe implements prometheus.Collector.
func (g gauges) Describe(c chan<- *prometheus.Desc) {
	c <- drainsDesc
	c <- sessionsDesc
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(c chan<- prometheus.Metric) {
	phases := make(map[lifecycle.Phase]int)
	var open, idle, lost int
	for _, d := range g.list() {
		s := d.now()
		phases[s.phase]++
		if s.phase != lifecycle.Released {
			open, idle, lost = open+s.counts.Open, idle+s.counts.Idle, lost+s.counts.Lost
		}
	}
	for p := lifecycle.Serving; p <= lifecycle.Released; p++ {
		c <- prometheus.MustNewConstMetric(drainsDesc, prometheus.GaugeValue, float64(phases[p]), p.String())
	}
	for _, s := range []struct {
		state conntrack.State
		n     int
	}{{conntrack.Open, open}, {conntrack.Idle, idle}, {conntrack.Lost, lost}} {
		c <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(s.n), s.state.String())
	}
}
