package node

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conndrain/conndrain/conntrack"
)

// watch is what a drain needs of a *conntrack.Watch.
type watch interface {
	Changes() <-chan struct{}
	Counts() conntrack.Counts
	Confirm(context.Context) (conntrack.Counts, error)
	Sessions() []conntrack.Session
	Others() []netip.AddrPort
	Report(conntrack.SocketReport)
	Unreported()
	Err() error
	Close() error
}

// drainer does the work of drains. It is safe for concurrent use.
type drainer struct {
	open      func(context.Context, conntrack.Target) (watch, error)
	live      func(ctx context.Context, namespace, name string, uid types.UID) (pod *corev1.Pod, date time.Time, _ error)
	shutdown  *shutdown
	routes    *routes
	balancers balancers
	own       func() ([]netip.Addr, error)
	events    events
	tally     *tally
	blind     *blindness
}

// drain blocks until the drain is released, and what its hooks have still to say is said,
// or life ends. Nothing of it runs afterwards.
func (r *drainer) drain(life context.Context, d *drain) {
	ctx, stop := context.WithCancel(life)
	v := &vigil{
		drainer: r, drain: d, begun: time.Now(),
		serving: true, confirmBy: later(time.Now(), d.askAfter).Add(liveTimeout + time.Second), askAt: d.askAfter,
		routed: true,
		lives:  make(chan liveAnswer, 1), stops: make(chan stopAnswer, 1), opens: make(chan openAnswer, 1),
		delays: newDelays(),
	}
	defer func() {
		stop()
		v.end()
		v.awaitResult(life)
	}()
	v.run(ctx)
}
