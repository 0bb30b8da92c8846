package node

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

const (
	// observeEvery is the least time between the beginnings of two looks.
	observeEvery = 10 * time.Second
	// observePause is how long a look waits for pods that are deleted at the same
	// time: without a hook a pod gets SIGTERM at once, so it is short.
	observePause = 20 * time.Millisecond
	// observeTimeout is how long a look and a list of slices may take.
	observeTimeout = 5 * time.Second
	// maxObserved is how many deleted pods wait for a look.
	maxObserved = 512
)

// observation is how a look at a deleted pod without a hook ended.
type observation string

// The observations.
const (
	observedSessions  observation = "sessions"  // it had some
	observedNone      observation = "none"      // it had none
	observedNoService observation = "noservice" // no slice lists it
	observedLate      observation = "late"      // it was gone before there was a look
	observedUnknown   observation = "unknown"   // the look failed
)

var observations = []observation{observedSessions, observedNone, observedNoService, observedLate, observedUnknown}

// observer tells which sessions pods without a hook still have when they are
// deleted, so that a team sees what its rollouts cut before it changes a line. It
// holds nothing and subscribes to nothing.
//
// It costs, and only when such a pod of this node is deleted: at most one streamed
// walk of the connection tracking table every ten seconds for all of them, and with
// each walk one list of the EndpointSlices of each namespace that one of the pods is
// in, from the API server's cache; then one Event for each pod that had sessions. A
// pod that is deleted sooner after a walk waits for the next one, and is told of with
// what it has then; one that is gone by then is counted as late, not as without
// sessions.
type observer struct {
	client kubernetes.Interface
	reader *conntrack.Reader
	own    func() ([]netip.Addr, error)
	events events
	tally  *tally
	log    *slog.Logger

	news chan struct{}

	mu     sync.Mutex
	queued map[types.UID]deletion
}

// deletion is a pod that was seen to begin to terminate.
type deletion struct {
	pod *corev1.Pod
	at  time.Time
}

func newObserver(client kubernetes.Interface, reader *conntrack.Reader, own func() ([]netip.Addr, error), e events, t *tally, log *slog.Logger) *observer {
	return &observer{
		client: client, reader: reader, own: own, events: e, tally: t, log: log,
		news: make(chan struct{}, 1), queued: make(map[types.UID]deletion),
	}
}

// began notes a pod without a hook that begins to terminate. It does not block.
func (o *observer) began(pod *corev1.Pod) {
	if pod.Spec.HostNetwork || len(addressesOf(pod)) == 0 {
		return // its sessions are not told from the node's, or there are none
	}
	o.mu.Lock()
	full := len(o.queued) >= maxObserved
	if !full {
		o.queued[pod.UID] = deletion{pod, time.Now()}
	}
	o.mu.Unlock()
	if full {
		o.count(observedUnknown)
		return
	}
	select {
	case o.news <- struct{}{}:
	default:
	}
}

// gone notes that a pod is no more: its address may be another's by the next look.
func (o *observer) gone(uid types.UID) {
	o.mu.Lock()
	_, waiting := o.queued[uid]
	delete(o.queued, uid)
	o.mu.Unlock()
	if waiting {
		o.count(observedLate)
	}
}

func (o *observer) count(how observation) { o.tally.observed.WithLabelValues(string(how)).Inc() }

// run looks at what was deleted until ctx ends. It blocks.
func (o *observer) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.news:
		}
		timer.Reset(observePause)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(observeEvery)
		if batch := o.take(); len(batch) > 0 {
			o.look(ctx, batch)
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

func (o *observer) take() []deletion {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []deletion
	for _, d := range o.queued {
		all = append(all, d)
	}
	clear(o.queued)
	return all
}

// look walks the table once for all pods, and asks at the same time which of them
// a Service selects.
func (o *observer) look(ctx context.Context, batch []deletion) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	var all []netip.Addr
	for _, d := range batch {
		all = append(all, addressesOf(d.pod)...)
	}
	var sessions []conntrack.Session
	var err error
	var walk sync.WaitGroup
	walked := time.Now()
	walk.Go(func() {
		sessions, _, err = o.reader.Sessions(ctx, conntrack.Target{Addresses: all})
	})
	lists := o.slices(ctx, batch)
	walk.Wait()
	if err != nil && ctx.Err() == nil {
		o.log.Warn("which sessions deleted pods have is unknown", "pods", len(batch), "err", err)
	}
	own, unknown := o.own()
	if unknown != nil {
		o.log.Warn("the node's addresses are unknown: its probes look like sessions", "err", unknown)
	}
	for _, d := range batch {
		list, known := lists[d.pod.Namespace]
		r := routeOf(list, d.pod)
		switch {
		case err != nil || !known:
			o.count(observedUnknown)
		case !r.listed:
			o.count(observedNoService)
		default:
			ports := served(r.ports, d.pod)
			if settings, _ := lifecycle.ParseAnnotations(d.pod.Annotations, named(d.pod)); len(settings.Ports) > 0 {
				ports = settings.Ports
			}
			o.tell(d, sessionsOf(d.pod, ports, own, sessions), walked)
		}
	}
}

func (o *observer) tell(d deletion, open []conntrack.Session, walked time.Time) {
	if len(open) == 0 {
		o.count(observedNone)
		return
	}
	o.count(observedSessions)
	o.tally.atDelete.Add(float64(len(open)))
	o.log.Info("a pod without a hook was deleted with sessions", "pod", d.pod.Namespace+"/"+d.pod.Name, "open", len(open))
	o.events.atDeletion(d.pod, open, walked.Sub(d.at))
}

// slices lists those of the pods' namespaces. One that is missing could not be
// listed.
func (o *observer) slices(ctx context.Context, batch []deletion) map[string][]discoveryv1.EndpointSlice {
	lists := make(map[string][]discoveryv1.EndpointSlice)
	var asked []string
	for _, d := range batch {
		namespace := d.pod.Namespace
		if slices.Contains(asked, namespace) {
			continue
		}
		asked = append(asked, namespace)
		// Version 0 is answered from the API server's own cache.
		list, err := o.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			o.log.Warn("whether a Service selects deleted pods is unknown", "namespace", namespace, "err", err)
			continue
		}
		lists[namespace] = list.Items
	}
	return lists
}

// routeOf is what a list of slices says about a pod.
func routeOf(list []discoveryv1.EndpointSlice, pod *corev1.Pod) route {
	r := route{known: true}
	addresses := addressesOf(pod)
	for i := range list {
		r.take(&list[i], pod, addresses)
	}
	return r
}

// sessionsOf leaves those of a pod that count as open, on the ports that it serves,
// without the probes from the node's own addresses; no ports are every port.
func sessionsOf(pod *corev1.Pod, ports []uint16, own []netip.Addr, all []conntrack.Session) []conntrack.Session {
	addresses, probes := addressesOf(pod), probed(pod)
	return slices.DeleteFunc(slices.Clone(all), func(s conntrack.Session) bool {
		open := s.State == conntrack.Open || s.State == conntrack.Lost
		ours := slices.Contains(addresses, s.Server.Addr().Unmap())
		probe := s.Destination == s.Server && s.Origin == s.Client &&
			slices.Contains(own, s.Client.Addr().Unmap()) && slices.Contains(probes, s.Server.Port())
		return !open || !ours || probe || len(ports) > 0 && !slices.Contains(ports, s.Server.Port())
	})
}
