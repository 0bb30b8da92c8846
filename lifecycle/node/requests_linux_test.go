package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

// What the README says of a drain's API requests: a GET of the pod and of each
// Service that lists it, two Events, and the slices of its namespace only.
func TestRequestsOfADrain(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	services := s.api.CoreV1().Services(namespace)
	_, err := services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}, metav1.CreateOptions{})
	must(t, err)
	c := s.connect(s.serve())
	s.delete(60)
	s.api.ClearActions()
	slice := newSlice(s.pod, false)
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
	_, err = s.api.DiscoveryV1().EndpointSlices(namespace).Update(t.Context(), slice, metav1.UpdateOptions{})
	must(t, err)
	first := s.prestop()
	again := s.prestop() // of another container
	s.reaches(lifecycle.Draining, 1)
	first.holds(3 * lookEvery)
	c.end(t)
	first.returns()
	again.returns()
	s.eventually("both Events are written", func() error {
		if n := s.asked("create", "events"); n != 2 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	for _, a := range s.api.Actions() {
		if a.GetResource().Resource == "endpointslices" && a.GetNamespace() != namespace {
			t.Errorf("%s of the slices of namespace %q", a.GetVerb(), a.GetNamespace())
		}
	}
	for _, tc := range []struct {
		verb, resource string
		most           int
	}{
		{"get", "pods", 1}, {"get", "services", 1}, {"list", "endpointslices", 1}, {"watch", "endpointslices", 2},
		{"create", "events", 2}, {"patch", "events", 0}, {"get", "nodes", 0}, {"list", "pods", 0}, {"list", "services", 0},
		{"create", "tokenreviews", 0},
	} {
		if n := s.asked(tc.verb, tc.resource); n > tc.most {
			t.Errorf("%s %s: %d times, want at most %d", tc.verb, tc.resource, n, tc.most)
		}
	}
}

// A container restart costs up to six GETs where logind cannot be asked, and no
// Event; a seventh where a tick and the end of the look fall together. The hook asks once: a
// second request that reaches the helper late, on a busy machine, would count as one of a
// hook that began after the look, and lead to another.
func TestRequestsOfARestart(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	s.api.ClearActions()
	if a := s.ask(lifecycle.DrainRequest{WaitSeconds: lifecycle.MaxWait.Seconds()}); a.Reason != lifecycle.NotTerminating {
		t.Fatalf("reason %s, want %s", a.Reason, lifecycle.NotTerminating)
	}
	if pods, nodes := s.asked("get", "pods"), s.asked("get", "nodes"); pods > 1 || pods+nodes > 7 {
		t.Errorf("%d GETs of the pod, %d of the Node", pods, nodes)
	}
	for _, verb := range []string{"list", "watch", "create", "patch"} {
		for _, resource := range []string{"endpointslices", "events", "pods", "services"} {
			if n := s.asked(verb, resource); n > 0 {
				t.Errorf("%s %s: %d times", verb, resource, n)
			}
		}
	}
}

// The API answers too late, such as when this process stood still meanwhile: that is no
// "not terminating".
func TestLateAnswerHoldsThePod(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Policy = quick })
	live, may := s.helper.drainer.live, make(chan struct{})
	s.helper.drainer.live = func(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, time.Time, error) {
		select {
		case <-may:
			return live(context.WithoutCancel(ctx), namespace, name, uid)
		case <-ctx.Done(): // or else a failure hangs
			return nil, time.Time{}, ctx.Err()
		}
	}
	s.start()
	c := s.connect(s.serve())
	s.delete(60)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	close(may)
	s.reaches(lifecycle.Draining, 1)
	c.end(t)
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("released as %s", a.Reason)
	}
}

// A hook of a deletion that began a moment before a restart's hook was let go, and asks
// a moment later, is one of another drain.
func TestHookOfADeletionAfterARestart(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	s.connect(s.serve())
	if a := s.hook(); a.Reason != lifecycle.NotTerminating {
		t.Fatalf("reason %s, want %s", a.Reason, lifecycle.NotTerminating)
	}
	began := time.Now().Add(-50 * time.Millisecond)
	s.delete(60)
	s.withdraw()
	s.eventually("draining with 1 open", func() error {
		a := s.ask(lifecycle.DrainRequest{ElapsedSeconds: time.Since(began).Seconds()})
		if a.Released() {
			t.Fatalf("released as %s, with a session", a.Reason)
		}
		if a.Phase != lifecycle.Draining.String() || a.Open == nil || *a.Open != 1 {
			return fmt.Errorf("%s", a.Phase)
		}
		return nil
	})
}
