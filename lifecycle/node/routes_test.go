package node

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestTakesNew(t *testing.T) {
	yes, no := true, false
	for _, tc := range []struct {
		name               string
		ready, terminating *bool
		want               bool
	}{
		{"ready", &yes, &no, true},
		{"nil is ready", nil, nil, true},
		{"not ready", &no, &no, false},
		{"terminating", &no, &yes, false},
		{"P15: terminating, published as ready", &yes, &yes, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := takesNew(discoveryv1.EndpointConditions{Ready: tc.ready, Terminating: tc.terminating}); got != tc.want {
				t.Errorf("takes new traffic: %t", got)
			}
		})
	}
}

// endpoint of a slice, by the pod's UID or only by its address.
func endpoint(uid, address string, ready bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
	if uid != "" {
		e.TargetRef = &corev1.ObjectReference{UID: types.UID(uid)}
	}
	return e
}

func sliceOf(name string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Endpoints: endpoints,
	}
}

func TestRouteOfAPod(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "uid-1"},
		Status:     corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.1.7"}, {IP: "fd00::7"}}},
	}
	for _, tc := range []struct {
		name           string
		slices         []*discoveryv1.EndpointSlice
		listed, routed bool
	}{
		{"no slice", nil, false, false},
		{"others only", []*discoveryv1.EndpointSlice{sliceOf("a", endpoint("uid-2", "10.244.1.8", true))}, false, false},
		{"ready", []*discoveryv1.EndpointSlice{sliceOf("a", endpoint("uid-1", "10.244.1.7", true))}, true, true},
		{"not ready", []*discoveryv1.EndpointSlice{sliceOf("a", endpoint("uid-1", "10.244.1.7", false))}, true, false},
		{"ready in one of two", []*discoveryv1.EndpointSlice{
			sliceOf("a", endpoint("uid-1", "10.244.1.7", false)), sliceOf("b", endpoint("uid-1", "fd00::7", true)),
		}, true, true},
		{"by its address", []*discoveryv1.EndpointSlice{sliceOf("a", endpoint("", "fd00:0::7", true))}, true, true},
		{"another pod at its address", []*discoveryv1.EndpointSlice{sliceOf("a", endpoint("uid-0", "10.244.1.7", true))}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := fake.NewClientset()
			for _, s := range tc.slices {
				_, err := client.DiscoveryV1().EndpointSlices("shop").Create(t.Context(), s, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
			}
			f, err := newRoutes(client).follow("shop")
			if err != nil {
				t.Fatal(err)
			}
			defer f.close()
			r := awaitRoute(t, f, pod)
			if r.listed != tc.listed || r.routed != tc.routed {
				t.Errorf("listed %t, routed %t", r.listed, r.routed)
			}
		})
	}
}

func awaitRoute(t *testing.T, f *follower, pod *corev1.Pod) route {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if r := f.of(pod); r.known {
			return r
		}
		select {
		case <-f.changes:
		case <-ctx.Done():
			t.Fatal("the slices are still not known")
		}
	}
}

// A namespace is watched once for all that follow it, and not after the last.
func TestRoutesShareOneWatch(t *testing.T) {
	client := fake.NewClientset()
	var lists, watches atomic.Int32
	client.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		lists.Add(1)
		return false, nil, nil
	})
	client.PrependWatchReactor("endpointslices", func(a clienttesting.Action) (bool, apiwatch.Interface, error) {
		watches.Add(1)
		if ns := a.GetNamespace(); ns != "shop" {
			t.Errorf("watches namespace %q", ns)
		}
		return false, nil, nil
	})
	routes := newRoutes(client)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", UID: "uid-1"}}
	var followers []*follower
	for range 3 {
		f, err := routes.follow("shop")
		if err != nil {
			t.Fatal(err)
		}
		awaitRoute(t, f, pod)
		followers = append(followers, f)
	}
	for _, f := range followers {
		f.close()
	}
	if lists.Load() != 1 || watches.Load() != 1 || len(routes.namespaces) != 0 {
		t.Errorf("%d lists, %d watches, %d namespaces left", lists.Load(), watches.Load(), len(routes.namespaces))
	}
	f, err := routes.follow("shop")
	if err != nil {
		t.Fatal(err)
	}
	awaitRoute(t, f, pod)
	f.close()
	if lists.Load() != 2 {
		t.Errorf("%d lists after a second time", lists.Load())
	}
}
