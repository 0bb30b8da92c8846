package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// routes tell whether new traffic is sent to a pod, by the EndpointSlices of its
// namespace. A namespace is listed and watched once for all that follow it, and no
// longer than that. It is safe for concurrent use.
type routes struct {
	client kubernetes.Interface

	mu         sync.Mutex
	namespaces map[string]*slicesOf
}

func newRoutes(client kubernetes.Interface) *routes {
	return &routes{client: client, namespaces: make(map[string]*slicesOf)}
}

// slicesOf is one namespace that somebody follows.
type slicesOf struct {
	informer cache.SharedIndexInformer
	stop     context.CancelFunc
	done     chan struct{}

	mu        sync.Mutex
	followers map[*follower]struct{}
}

// follower hears of changes in one namespace until it is closed.
type follower struct {
	routes    *routes
	namespace string
	slices    *slicesOf
	changes   chan struct{}
}

// follow begins to follow a namespace, and returns at once. Close ends it.
func (r *routes) follow(namespace string) (*follower, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.namespaces[namespace]
	if s == nil {
		var err error
		if s, err = startSlices(r.client, namespace); err != nil {
			return nil, fmt.Errorf("follow slices of %s: %w", namespace, err)
		}
		r.namespaces[namespace] = s
	}
	f := &follower{routes: r, namespace: namespace, slices: s, changes: make(chan struct{}, 1)}
	s.mu.Lock()
	s.followers[f] = struct{}{}
	s.mu.Unlock()
	f.notify() // what there is already is news to it
	return f, nil
}

func startSlices(client kubernetes.Interface, namespace string) (*slicesOf, error) {
	s := &slicesOf{
		informer:  discoveryinformers.NewFilteredEndpointSliceInformer(client, namespace, 0, nil, nil),
		done:      make(chan struct{}),
		followers: make(map[*follower]struct{}),
	}
	registration, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { s.notify() },
		UpdateFunc: func(_, _ any) { s.notify() },
		DeleteFunc: func(any) { s.notify() },
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() {
		defer close(s.done)
		synced := make(chan struct{})
		go func() {
			defer close(synced)
			// A namespace without a slice tells nothing but that.
			if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
				s.notify()
			}
		}()
		s.informer.RunWithContext(ctx)
		<-synced
	}()
	return s, nil
}

func (s *slicesOf) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.followers {
		f.notify()
	}
}

func (f *follower) notify() {
	select {
	case f.changes <- struct{}{}:
	default:
	}
}

// close ends the following and, with the last one of the namespace, its watch; it
// waits for that.
func (f *follower) close() {
	f.routes.mu.Lock()
	defer f.routes.mu.Unlock()
	f.slices.mu.Lock()
	delete(f.slices.followers, f)
	last := len(f.slices.followers) == 0
	f.slices.mu.Unlock()
	if !last {
		return
	}
	delete(f.routes.namespaces, f.namespace)
	f.slices.stop()
	<-f.slices.done
}

// route is what the slices say about a pod.
type route struct {
	// Known is false until the first list is there; nothing else then means anything.
	known bool
	// Listed says that some slice lists the pod, Routed that one sends it new traffic.
	listed, routed bool
	ports          []port
	// services are those whose slices list the pod.
	services []string
}

// of says what the slices say about the pod now. It does not block.
func (f *follower) of(pod *corev1.Pod) route {
	r := route{known: f.slices.informer.HasSynced()}
	addresses := addressesOf(pod)
	for _, o := range f.slices.informer.GetStore().List() {
		slice, ok := o.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		r.take(slice, pod, addresses)
	}
	return r
}

// take takes in what one slice says about the pod.
func (r *route) take(slice *discoveryv1.EndpointSlice, pod *corev1.Pod, addresses []netip.Addr) {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if !isOf(e, pod, addresses) {
			continue
		}
		r.listed = true
		r.routed = r.routed || takesNew(e.Conditions)
		if name := slice.Labels[discoveryv1.LabelServiceName]; name != "" && !slices.Contains(r.services, name) {
			r.services = append(r.services, name)
		}
		for _, p := range slice.Ports {
			r.add(p)
		}
	}
}

func (r *route) add(p discoveryv1.EndpointPort) {
	if p.Port == nil {
		return // every port: what is declared decides
	}
	n, ok := portNumber(*p.Port)
	if !ok {
		return
	}
	found := port{number: n, other: p.Protocol != nil && *p.Protocol != corev1.ProtocolTCP}
	if p.Name != nil {
		found.name = *p.Name
	}
	if p.AppProtocol != nil {
		found.protocol = *p.AppProtocol
	}
	if !slices.Contains(r.ports, found) {
		r.ports = append(r.ports, found)
	}
}

// isOf says whether the endpoint is the pod: by its UID or, where a slice made by
// somebody else names none, by its address.
func isOf(e *discoveryv1.Endpoint, pod *corev1.Pod, addresses []netip.Addr) bool {
	if e.TargetRef != nil && e.TargetRef.UID != "" {
		return e.TargetRef.UID == pod.UID
	}
	for _, text := range e.Addresses {
		if a, err := netip.ParseAddr(text); err == nil && slices.Contains(addresses, a.Unmap()) {
			return true
		}
	}
	return false
}

// takesNew says whether new traffic is sent to an endpoint with these conditions.
// Services that publish addresses which are not ready keep ready at true, so
// terminating counts as well.
func takesNew(c discoveryv1.EndpointConditions) bool {
	ready := c.Ready == nil || *c.Ready
	terminating := c.Terminating != nil && *c.Terminating
	return ready && !terminating
}
