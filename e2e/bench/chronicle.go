package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// fate is what became of a pod: when this process heard of it, but for what the container said itself.
type fate struct {
	name      string
	deleted   time.Time            // it is terminating
	withdrawn time.Time            // its Service sends it nothing new
	told      *traffic.Termination // by the container, at SIGTERM
	gone      time.Time            // it is no more
}

// chronicle writes down the fates of a namespace's pods. It is safe for concurrent use.
type chronicle struct {
	mu     sync.Mutex
	fates  map[types.UID]fate
	err    error
	routed map[types.UID]bool
	end    func()
}

// follow begins a chronicle and blocks until it knows what there is. Its end stops it.
func (s *site) follow(ctx context.Context, namespace string) (*chronicle, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &chronicle{fates: map[types.UID]fate{}, routed: map[types.UID]bool{}}
	f := informers.NewSharedInformerFactoryWithOptions(s.Client, 0, informers.WithNamespace(namespace))
	c.end = func() {
		cancel()
		f.Shutdown()
	}
	pods, podsErr := f.Core().V1().Pods().Informer().AddEventHandler(handler(c.pod))
	slices, slicesErr := f.Discovery().V1().EndpointSlices().Informer().AddEventHandler(handler(c.slice))
	if err := errors.Join(podsErr, slicesErr); err != nil {
		cancel()
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	f.Start(ctx.Done())
	// the handlers, not only the caches, have seen what there is
	err := await(ctx, "pods and EndpointSlices are listed", func(context.Context) error {
		if !pods.HasSynced() || !slices.HasSynced() {
			return errors.New("they are not")
		}
		return nil
	})
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// handler calls see for what is there and what was.
func handler[T any](see func(o T, gone bool)) cache.ResourceEventHandlerFuncs {
	call := func(o any, gone bool) {
		if lost, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = lost.Obj
		}
		if o, ok := o.(T); ok {
			see(o, gone)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { call(o, false) },
		UpdateFunc: func(_, o any) { call(o, false) },
		DeleteFunc: func(o any) { call(o, true) },
	}
}

func (c *chronicle) pod(pod *corev1.Pod, gone bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.fates[pod.UID]
	f.name = pod.Name
	if pod.DeletionTimestamp != nil && f.deleted.IsZero() {
		f.deleted = now
	}
	if gone {
		f.gone = now
	}
	for _, status := range pod.Status.ContainerStatuses {
		if t := status.State.Terminated; status.Name == app && t != nil && t.Message != "" && f.told == nil {
			f.told = new(traffic.Termination)
			if err := json.Unmarshal([]byte(t.Message), f.told); err != nil {
				c.err = errors.Join(c.err, fmt.Errorf("read termination message %q of %s: %w", t.Message, pod.Name, err))
			}
		}
	}
	c.fates[pod.UID] = f
}

func (c *chronicle) slice(slice *discoveryv1.EndpointSlice, gone bool) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range slice.Endpoints {
		if e.TargetRef == nil {
			continue
		}
		uid := e.TargetRef.UID
		if routed := !gone && e.Conditions.Ready != nil && *e.Conditions.Ready; routed {
			c.routed[uid] = true
		} else if c.routed[uid] {
			c.routed[uid] = false
			f := c.fates[uid]
			f.withdrawn = now
			c.fates[uid] = f
		}
	}
}

// of is a pod's fate up to now.
func (c *chronicle) of(uid types.UID) fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fates[uid]
}

// all are the fates up to now.
func (c *chronicle) all() map[types.UID]fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.fates)
}

// gone blocks until the pods are no more and returns what became of them, in their order. A server that has not told when
// SIGTERM came is an error.
func (c *chronicle) gone(ctx context.Context, uids []types.UID) ([]fate, error) {
	var fates []fate
	err := await(ctx, "pods are gone", func(context.Context) error {
		fates = fates[:0]
		left := 0
		for _, uid := range uids {
			f := c.of(uid)
			fates = append(fates, f)
			if f.gone.IsZero() {
				left++
			}
		}
		if left > 0 {
			return fmt.Errorf("%d of %d are there", left, len(uids))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, f := range fates {
		if f.told == nil {
			return nil, fmt.Errorf("pod %s is gone and its server never said that SIGTERM came", f.name)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return fates, c.err
}

// uidsOf are the pods' UIDs.
func uidsOf(pods []corev1.Pod) []types.UID {
	var all []types.UID
	for _, p := range pods {
		all = append(all, p.UID)
	}
	return all
}
