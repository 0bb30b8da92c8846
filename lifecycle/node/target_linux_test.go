package node

import (
	"errors"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

// A slice that comes late says which ports count: until then those that the pod
// declares do, and a session on another one must not be missed for that.
func TestPortsOfALateSlice(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Policy = quick })
	withdrawn := newSlice(s.pod, false)
	// The pod declares another port than the one that its Service leads to.
	s.pod = s.pod.DeepCopy()
	s.pod.Spec.Containers[0].Ports[0].ContainerPort++
	_, err := s.api.CoreV1().Pods(namespace).Update(t.Context(), s.pod, metav1.UpdateOptions{})
	must(t, err)
	var there atomic.Bool
	s.api.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		if there.Load() {
			return false, nil, nil
		}
		return true, nil, errors.New("the server is busy")
	})
	s.start()
	c := s.connect(s.serve())
	s.delete(60)
	s.eventually("the sessions of the declared port are known", func() error {
		if a := s.ask(lifecycle.DrainRequest{}); a.Open == nil || *a.Open != 0 {
			return errors.New("phase is " + a.Phase)
		}
		return nil
	})
	there.Store(true)
	s.reaches(lifecycle.Withdrawing, 1)
	_, err = s.api.DiscoveryV1().EndpointSlices(namespace).Update(t.Context(), withdrawn, metav1.UpdateOptions{})
	must(t, err)
	s.reaches(lifecycle.Draining, 1)
	c.end(t)
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
}
