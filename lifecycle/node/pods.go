package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/conndrain/conndrain/lifecycle"
)

// liveTimeout is how long the API may take to tell whether a pod is terminating.
const liveTimeout = 3 * time.Second

const byAddress = "address"

// pods are those of this node, by a watch. It is safe for concurrent use.
type pods struct {
	client   kubernetes.Interface
	informer cache.SharedIndexInformer

	mu sync.Mutex
	// inherited are the pods that were terminating already when they were first
	// listed.
	inherited map[types.UID]struct{}
}

// newPods returns the pods of a node; run fills them. changed is called for every
// pod that was added, changed or, with gone, deleted.
func newPods(client kubernetes.Interface, node string, changed func(pod *corev1.Pod, gone bool)) (*pods, error) {
	informer := coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0,
		cache.Indexers{byAddress: indexByAddress},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
		})
	if err := informer.SetTransform(trim); err != nil {
		return nil, fmt.Errorf("trim pods: %w", err)
	}
	p := &pods{client: client, informer: informer, inherited: make(map[types.UID]struct{})}
	tell := func(o any, gone bool) {
		if pod, ok := o.(*corev1.Pod); ok {
			if gone {
				p.disinherit(pod.UID)
			}
			changed(pod, gone)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, first bool) {
			if pod, ok := o.(*corev1.Pod); ok && first && pod.DeletionTimestamp != nil {
				p.inherit(pod.UID)
			}
			tell(o, false)
		},
		UpdateFunc: func(before, o any) {
			// A new list may have another pod of the name, and then nobody tells the end
			// of the one before.
			if old, ok := before.(*corev1.Pod); ok {
				if pod, ok := o.(*corev1.Pod); ok && pod.UID != old.UID {
					tell(old, true)
				}
			}
			tell(o, false)
		},
		DeleteFunc: func(o any) {
			if lost, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = lost.Obj
			}
			tell(o, true)
		},
	}); err != nil {
		return nil, fmt.Errorf("follow pods: %w", err)
	}
	return p, nil
}

// run follows the pods until ctx ends. It blocks.
func (p *pods) run(ctx context.Context) { p.informer.RunWithContext(ctx) }

func (p *pods) synced() bool { return p.informer.HasSynced() }

// at returns the pod whose address this is. It is nil for an address of nobody, of
// a hostNetwork pod or of a pod that has ended; and where two pods seem to have it,
// which is over as soon as the watch has caught up.
func (p *pods) at(a netip.Addr) *corev1.Pod {
	objects, err := p.informer.GetIndexer().ByIndex(byAddress, a.Unmap().WithZone("").String())
	if err != nil || len(objects) != 1 {
		return nil
	}
	return objects[0].(*corev1.Pod)
}

func (p *pods) inherit(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inherited[uid] = struct{}{}
}

func (p *pods) disinherit(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.inherited, uid)
}

// wasTerminating says whether the pod was terminating already when this helper
// began to look: its hook may have been run before.
func (p *pods) wasTerminating(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, was := p.inherited[uid]
	return was
}

// named returns the pod of that name, or nil.
func (p *pods) named(namespace, name string) *corev1.Pod {
	o, known, err := p.informer.GetIndexer().GetByKey(namespace + "/" + name)
	if err != nil || !known {
		return nil
	}
	return o.(*corev1.Pod)
}

// live asks the API for the pod as it is now. It returns nil where it is gone or
// another one has its name, and an error where the API does not tell. date is the
// moment by the API server's clock, zero where it does not tell that.
func (p *pods) live(ctx context.Context, namespace, name string, uid types.UID) (_ *corev1.Pod, date time.Time, _ error) {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	ctx, told := withAPIDate(ctx)
	pod, err := p.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, *told, nil
	case err != nil:
		return nil, *told, fmt.Errorf("get pod: %w", err)
	case pod.UID != uid:
		return nil, *told, nil
	}
	trimPod(pod) // as those of the watch are
	return pod, *told, nil
}

func indexByAddress(o any) ([]string, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Spec.HostNetwork || ended(pod) {
		return nil, nil
	}
	var keys []string
	for _, a := range addressesOf(pod) {
		keys = append(keys, a.String())
	}
	return keys, nil
}

// ended says that the pod's address may be another's by now.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func addressesOf(pod *corev1.Pod) []netip.Addr {
	var all []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && !slices.Contains(all, a.Unmap()) {
			all = append(all, a.Unmap())
		}
	}
	return all
}

// graceOf is how long Kubernetes gives the pod now: what its deletion says, which
// is not always what its spec says.
func graceOf(pod *corev1.Pod) time.Duration {
	grace := int64(lifecycle.DefaultGrace / time.Second)
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = *s
	}
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		grace = *s
	}
	return time.Duration(grace) * time.Second
}

// trim leaves of a pod what a drain needs: a node may have hundreds. What was
// trimmed may be trimmed again.
func trim(o any) (any, error) {
	if pod, ok := o.(*corev1.Pod); ok {
		trimPod(pod)
	}
	return o, nil
}

func trimPod(pod *corev1.Pod) {
	pod.ManagedFields = nil
	pod.Labels = nil
	pod.Finalizers = nil
	pod.OwnerReferences = nil
	pod.Annotations = ourAnnotations(pod.Annotations)
	pod.Spec = corev1.PodSpec{
		Containers:                    trimContainers(pod.Spec.Containers),
		InitContainers:                trimContainers(pod.Spec.InitContainers),
		TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds,
		HostNetwork:                   pod.Spec.HostNetwork,
		HostPID:                       pod.Spec.HostPID,
		ShareProcessNamespace:         pod.Spec.ShareProcessNamespace,
		Priority:                      pod.Spec.Priority,
	}
	pod.Status = corev1.PodStatus{Phase: pod.Status.Phase, PodIPs: pod.Status.PodIPs}
}

func ourAnnotations(all map[string]string) map[string]string {
	var ours map[string]string
	for name, value := range all {
		if !strings.HasPrefix(name, lifecycle.AnnotationPrefix) {
			continue
		}
		if ours == nil {
			ours = make(map[string]string)
		}
		ours[name] = value
	}
	return ours
}

func trimContainers(full []corev1.Container) []corev1.Container {
	var all []corev1.Container
	for _, c := range full {
		all = append(all, corev1.Container{
			Name: c.Name, Ports: c.Ports, RestartPolicy: c.RestartPolicy,
			Lifecycle:      trimLifecycle(&c),
			ReadinessProbe: c.ReadinessProbe, LivenessProbe: c.LivenessProbe, StartupProbe: c.StartupProbe,
		})
	}
	return all
}
