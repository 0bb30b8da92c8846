package node

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/conndrain/conndrain/conntrack"
)

// Component is the source of the Events.
const Component = "conndrain-node"

// stopTimeout is how long answers may take to leave when the helper ends.
const stopTimeout = 2 * time.Second

// Helper serves one node.
type Helper struct {
	config   Config
	pods     *pods
	drains   *drains
	drainer  *drainer
	identity *identity
	events   events
	deaf     deaf
	recorder record.EventBroadcaster
	registry *prometheus.Registry
	ready    *readiness
	tally    *tally
	// observer is nil where pods without a hook are left alone.
	observer   *observer
	beginnings *beginnings

	listen func(ctx context.Context, network, address string) (net.Listener, error)
	own    func() ([]netip.Addr, error)
}

// New returns the Helper of a node, which reads sessions with the reader and has
// its metrics in the registry. It does no I/O. Errors are those of Validate.
func New(c Config, client kubernetes.Interface, reader *conntrack.Reader, registry *prometheus.Registry) (*Helper, error) {
	c.Defaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	h := &Helper{config: c, registry: registry, own: ownAddresses, listen: new(net.ListenConfig).Listen}
	h.recorder = record.NewBroadcaster()
	h.recorder.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})
	source := corev1.EventSource{Component: Component, Host: c.Node}
	h.events = events{h.recorder.NewRecorder(scheme.Scheme, source)}
	d := &drainer{
		open: func(ctx context.Context, t conntrack.Target) (watch, error) {
			w, err := reader.Watch(ctx, t)
			if err != nil {
				return nil, err // not w, which would make a watch that is not nil
			}
			return w, nil
		},
		shutdown: newShutdown(c, client), routes: newRoutes(client), balancers: balancers{client},
		own:    func() ([]netip.Addr, error) { return h.own() },
		events: h.events,
		tally:  newTally(registry),
		blind:  newBlindness(c.Logger, registry),
	}
	work := d.drain
	if c.Disabled {
		c.Logger.Warn("conndrain is switched off (CONNDRAIN_DISABLE): hooks sleep, whatever is open")
		work = d.sleep
	}
	h.drains, h.tally = newDrains(c, work), d.tally
	h.beginnings = newBeginnings(c.Logger)
	h.beginnings.missed = func(pod *corev1.Pod) {
		d.tally.missed.Inc()
		h.events.missed(pod)
	}
	if c.Observe != nil && !c.Disabled {
		h.observer = newObserver(client, c.Observe, d.own, d.events, d.tally, c.Logger)
		h.beginnings.began = h.observer.began
	}
	pods, err := newPods(client, c.Node, h.changed)
	if err != nil {
		return nil, err
	}
	h.pods, h.drainer, d.live = pods, d, pods.live
	h.identity = newIdentity(c, client, pods.named)
	h.ready = &readiness{synced: pods.synced, deaf: h.deaf.Err, kernel: reader.Ready, now: time.Now}
	if c.Disabled {
		h.ready.kernel = nil // it is not read
	}
	registry.MustRegister(gauges{
		list: h.drains.list, disabled: c.Disabled, version: c.Version,
		stats: func() []conntrack.Stats {
			all := []conntrack.Stats{reader.Stats()}
			if c.Observe != nil {
				all = append(all, c.Observe.Stats())
			}
			return all
		},
	})
	return h, nil
}

// changed takes in a pod of the node as it is now; gone says that it was deleted.
func (h *Helper) changed(pod *corev1.Pod, gone bool) {
	h.drains.changed(pod, gone)
	h.beginnings.changed(pod, gone)
	if gone && h.observer != nil {
		h.observer.gone(pod.UID)
	}
}

// Run serves until ctx ends. It returns when nothing of it runs any more. It is
// called once.
func (h *Helper) Run(ctx context.Context) error {
	defer h.recorder.Shutdown()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		h.pods.run(ctx)
		return nil
	})
	if h.observer != nil {
		g.Go(func() error {
			h.observer.run(ctx)
			return nil
		})
	}
	api := &server{
		pods: h.pods, drains: h.drains, own: h.own, identity: h.identity,
		log: h.config.Logger, life: ctx, calls: h.beginnings.calls,
		delayed:  func(delay time.Duration) { h.tally.delay.Observe(delay.Seconds()) },
		notified: h.events.notified,
	}
	for _, a := range h.config.Addresses {
		h.serve(ctx, g, a, h.config.APIPort, api.http(), api.knows)
		h.serve(ctx, g, a, h.config.MetricsPort, h.metrics(), nil)
	}
	h.serveLocal(ctx, g)
	g.Go(func() error {
		<-ctx.Done()
		h.drains.close()
		return nil
	})
	return g.Wait()
}

// metrics serves scrapes and probes.
func (h *Helper) metrics() *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{}))
	// That it answers is all: a restart mends nothing that is wrong outside of it, such
	// as an API that is away, and costs the drains that run.
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if faults := h.ready.faults(); len(faults) > 0 {
			http.Error(w, strings.Join(faults, "\n"), http.StatusServiceUnavailable)
		}
	})
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout + requestTimeout,
		WriteTimeout:      time.Minute,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}
}

// ownAddresses are those of the interfaces of this network namespace.
func ownAddresses() ([]netip.Addr, error) {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list own addresses: %w", err)
	}
	var all []netip.Addr
	for _, n := range nets {
		if p, ok := n.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(p.IP); ok {
				all = append(all, a.Unmap())
			}
		}
	}
	return all, nil
}
