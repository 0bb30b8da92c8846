package node

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conndrain/conndrain/conntrack"
)

// blindness is whether pods of this node have sessions that conntrack does not
// see. It is said once per node and not of each pod, because it is the data path's
// and not theirs. It is safe for concurrent use.
type blindness struct {
	log  *slog.Logger
	once sync.Once
	now  atomic.Bool
}

func newBlindness(log *slog.Logger, r prometheus.Registerer) *blindness {
	b := &blindness{log: log}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "conndrain_node_blind",
		Help: "1 if the last pod with sessions had some that conntrack does not see, so that its sockets decided.",
	}, func() float64 {
		if b.now.Load() {
			return 1
		}
		return 0
	}))
	return b
}

// saw takes in a drain's counts.
func (b *blindness) saw(c conntrack.Counts, released bool) {
	switch {
	case c.Source == conntrack.FromSockets:
		b.now.Store(true)
		b.once.Do(func() {
			b.log.Warn("connections bypass conntrack on this node: the pods' own sockets decide, where their hooks tell of them")
		})
	case released && c.Known && c.Peak > 0:
		b.now.Store(false)
	}
}
