package node

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

func annotated(all map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = all }
}

// until: withdrawn lets the pod go with its sessions, when it is sent nothing new.
func TestUntilWithdrawn(t *testing.T) {
	t.Parallel()
	s := newScene(t, annotated(map[string]string{"conndrain.io/until": "withdrawn"}), quick)
	s.connect(s.serve())
	s.delete(60)
	s.reaches(lifecycle.Withdrawing, 1)
	s.withdraw()
	begin := time.Now()
	if a := s.hook(); a.Reason != lifecycle.Drained || a.Cut != nil || time.Since(begin) > 10*time.Second {
		t.Errorf("answer %+v after %s, want drained", a, time.Since(begin))
	}
	s.eventNaming("Drained: No new traffic is sent to the pod, 1 session left to the application")
	s.metric(`conndrain_sessions_cut_total{activity="active"} 0`)
}

// The same of a single port, beside one whose sessions hold.
func TestUntilOfSinglePorts(t *testing.T) {
	t.Parallel()
	s := newScene(t, annotated(map[string]string{"conndrain.io/until": "http=withdrawn,sessions", "conndrain.io/ports": "http,9000"}), quick)
	s.connect(s.serve())
	db := s.connectTo(s.listen(9000), netip.AddrPortFrom(s.lab.PodAddr, 9000))
	s.delete(60)
	s.withdraw()
	p := s.prestop()
	s.reaches(lifecycle.Draining, 2)
	p.holds(2 * time.Second)
	s.eventNaming("Draining: Waiting up to", "for 1 session: "+db.client.LocalAddr().String()+" to port 9000/tcp")
	ended := time.Now()
	db.end(t)
	p.returns()
	if late := time.Since(ended); late > 10*time.Second {
		t.Errorf("returned %s after the end of what held it", late)
	}
	s.eventNaming("Drained: The last session that was waited for has ended, 1 session left to the application; released")
	s.metric(`conndrain_sessions_cut_total{activity="active"} 0`)
}

// P3, P8: ports and idle-after of the annotations decide what holds.
func TestAnnotatedPortsAndIdleAfter(t *testing.T) {
	t.Parallel()
	s := newScene(t, annotated(map[string]string{"conndrain.io/ports": "9999"}), quick)
	l := s.serve()
	s.connect(l)
	s.delete(60)
	s.withdraw()
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("a session to a port that does not count: %s", a.Reason)
	}
	s = newScene(t, annotated(map[string]string{"conndrain.io/ports": "http", "conndrain.io/idle-after": "1s"}), quick)
	s.connect(s.serve())
	s.delete(60)
	s.withdraw()
	if a := s.hook(); a.Reason != lifecycle.Drained || a.Idle == nil || *a.Idle != 1 {
		t.Errorf("an idle session: %+v", a)
	}
}

// A person who changes an annotation while the pod hangs is heard: to let it go, or
// to hold it for something else.
func TestAnnotationsChangeInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]map[string]string{
		"until":      {"conndrain.io/until": "withdrawn"},
		"idle-after": {"conndrain.io/idle-after": "1s"},
		"ports":      {"conndrain.io/ports": "9999"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, nil, quick)
			s.connect(s.serve())
			s.delete(900)
			s.withdraw()
			s.reaches(lifecycle.Draining, 1)
			s.annotate(all)
			if a := s.hook(); a.Reason != lifecycle.Drained {
				t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
			}
		})
	}
	t.Run("back again", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, annotated(map[string]string{"conndrain.io/ports": "9999", "conndrain.io/settle": "1h"}), quick)
		c := s.connect(s.serve())
		s.delete(900)
		s.withdraw()
		s.reaches(lifecycle.Settling, 0)
		s.annotate(map[string]string{"conndrain.io/settle": "0s"})
		s.reaches(lifecycle.Draining, 1)
		c.end(t)
		if a := s.hook(); a.Reason != lifecycle.Drained {
			t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
		}
	})
	// Nothing that is said later gives a pod more time than it had.
	t.Run("reserve", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, annotated(map[string]string{"conndrain.io/reserve": "30s"}), quick)
		s.connect(s.serve())
		s.delete(60)
		s.withdraw()
		s.reaches(lifecycle.Draining, 1)
		s.annotate(map[string]string{"conndrain.io/reserve": "0s"})
		s.annotate(map[string]string{"conndrain.io/reserve": "58s"})
		if a := s.hook(); a.Reason != lifecycle.Expired {
			t.Errorf("reason %s, want %s", a.Reason, lifecycle.Expired)
		}
		s.eventNaming("DrainExpired", "after 2.")
	})
}

// Each malformed annotation is one Event, however often the pod changes, and the
// drain goes by the defaults.
func TestMalformedAnnotationsAreTold(t *testing.T) {
	t.Parallel()
	s := newScene(t, annotated(map[string]string{
		"conndrain.io/until": "8080=requests,8080=sessions", "conndrain.io/settle": "soon", "conndrain.io/typo": "x",
		"conndrain.io/ports": "nowhere", "conndrain.io/reserve": "2m", "example.com/other": "x",
	}), quick)
	c := s.connect(s.serve())
	s.delete(60)
	s.withdraw()
	if left, _ := s.reaches(lifecycle.Draining, 1).Remaining(); left < 40*time.Second {
		t.Errorf("%s remain of 60s less the usual reserve", left)
	}
	s.annotate(s.pod.Annotations)
	c.end(t)
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
	for _, says := range []string{
		`conndrain.io/until: "8080=requests,8080=sessions" says two things of port 8080`, `conndrain.io/settle: "soon" is not a duration`,
		"conndrain.io/typo is not known", `conndrain.io/ports: "nowhere"`, `conndrain.io/reserve: "2m" leaves nothing of the 60 s`,
	} {
		s.eventNaming("MalformedAnnotation: ", says)
	}
	n := 0
	for _, e := range s.events() {
		if strings.HasPrefix(e, "MalformedAnnotation") {
			n++
		}
	}
	if n != 5 {
		t.Errorf("%d Events, want one for each of 5: %q", n, s.events())
	}
}

// P15: terminating counts where a Service publishes addresses that are not ready.
func TestP15PublishNotReadyAddresses(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	s.delete(900)
	slice := newSlice(s.pod, false)
	yes := true
	slice.Endpoints[0].Conditions.Ready = &yes
	_, err := s.api.DiscoveryV1().EndpointSlices(namespace).Update(t.Context(), slice, metav1.UpdateOptions{})
	must(t, err)
	begin := time.Now()
	if a := s.hook(); a.Reason != lifecycle.Drained || time.Since(begin) > 20*time.Second {
		t.Errorf("%s after %s", a.Reason, time.Since(begin))
	}
}

// P17: new sessions restart the quiet time for so long only.
func TestP17NewSessionsKeepComing(t *testing.T) {
	t.Parallel()
	policy := lifecycle.Policy{Settle: 4 * time.Second, SettleMax: 8 * time.Second}
	s := newScene(t, nil, policy)
	l := s.serve()
	s.delete(900)
	done := make(chan lifecycle.DrainAnswer, 1)
	go func() { done <- s.hook() }()
	s.reaches(lifecycle.Withdrawing, 0)
	begin := time.Now()
	s.withdraw()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case a := <-done:
			took := time.Since(begin)
			if a.Reason != lifecycle.Drained || took < policy.SettleMax || took > policy.SettleMax*5/2 {
				t.Errorf("%s after %s, want %s after about %s", a.Reason, took, lifecycle.Drained, policy.SettleMax)
			}
			return
		case <-tick.C:
			s.connect(l).end(t)
		}
	}
}

// P18: min-delay holds a pod without a session, by its annotation or because a
// Service of it has externalTrafficPolicy Local.
func TestP18MinDelay(t *testing.T) {
	t.Parallel()
	service := func(policy corev1.ServiceExternalTrafficPolicy) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
			Spec:       corev1.ServiceSpec{ExternalTrafficPolicy: policy},
		}
	}
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		service     *corev1.Service
		fails       bool
		least, most time.Duration
	}{
		{"annotated", map[string]string{"conndrain.io/min-delay": "3s"}, nil, false, 3 * time.Second, 8 * time.Second},
		{"annotated, and Local", map[string]string{"conndrain.io/min-delay": "0s"}, service("Local"), false, 0, 8 * time.Second},
		{"Local", nil, service("Local"), false, localDelay, localDelay + 8*time.Second},
		{"Cluster", nil, service("Cluster"), false, 0, 8 * time.Second},
		{"gone", nil, nil, false, 0, 8 * time.Second},
		{"unknown", nil, nil, true, localDelay, localDelay + 8*time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := prepareScene(t, netlab.LabOptions{}, annotated(tc.annotations), func(c *Config) { c.Policy = quick })
			var gets atomic.Int32
			s.api.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
				gets.Add(1)
				if tc.fails {
					return true, nil, errors.New("connection refused")
				}
				return false, nil, nil
			})
			s.start()
			if tc.service != nil {
				_, err := s.api.CoreV1().Services(namespace).Create(t.Context(), tc.service, metav1.CreateOptions{})
				must(t, err)
			}
			s.delete(900)
			slice := newSlice(s.pod, false)
			slice.Labels = map[string]string{discoveryv1.LabelServiceName: "web"}
			_, err := s.api.DiscoveryV1().EndpointSlices(namespace).Update(t.Context(), slice, metav1.UpdateOptions{})
			must(t, err)
			begin := time.Now()
			a := s.hook()
			took := time.Since(begin)
			if a.Reason != lifecycle.Drained || took < tc.least-100*time.Millisecond || took > tc.most {
				t.Errorf("%s after %s, want %s after %s", a.Reason, took, lifecycle.Drained, tc.least)
			}
			if n := gets.Load(); n > 1 {
				t.Errorf("%d GETs of one Service", n)
			}
		})
	}
}

// P18, P17: a load balancer goes on sending after the withdrawal, for longer than
// settle and settle-max. Nothing is let go before min-delay, what came meanwhile is
// counted apart, and what is open after min-delay holds until it has ended.
func TestP18BalancerGoesOnSending(t *testing.T) {
	t.Parallel()
	const delay = 8 * time.Second
	s := newScene(t, annotated(map[string]string{"conndrain.io/min-delay": delay.String()}),
		lifecycle.Policy{Settle: 300 * time.Millisecond, SettleMax: time.Second})
	l := s.serve()
	s.delete(900)
	s.reaches(lifecycle.Withdrawing, 0)
	p := s.prestop()
	before := time.Now() // the withdrawal is seen after it
	s.withdraw()
	s.reaches(lifecycle.Settling, 0)
	n := 0
	for ; time.Since(before) < delay/2; n++ {
		s.connect(l).end(t)
		p.holds(500 * time.Millisecond)
	}
	p.holds(delay - time.Second - time.Since(before)) // without a session, and settle-max is long over
	last := s.connect(l)
	n++
	p.holds(5 * time.Second)
	ended := time.Now()
	last.end(t)
	p.returns()
	if late := time.Since(ended); late > 5*time.Second {
		t.Errorf("returned %s after the last session's end", late)
	}
	s.says(p, "reason=Drained helper=true")
	s.metric(fmt.Sprintf("conndrain_new_sessions_after_withdrawal_total %d", n))
	s.eventNaming("Drained: The last session has ended", fmt.Sprintf("%d began during the drain", n))
}

// P19: the grace period of the deletion counts, not that of the spec.
func TestP19GracePeriodOfTheDeletion(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(p *corev1.Pod) {
		long := int64(900)
		p.Spec.TerminationGracePeriodSeconds = &long
	}, quick)
	s.connect(s.serve())
	s.delete(4)
	s.withdraw()
	begin := time.Now()
	a := s.hook()
	if took := time.Since(begin); a.Reason != lifecycle.Expired || took < 3*time.Second || took > 6*time.Second {
		t.Errorf("%s after %s, want %s after 3.2s", a.Reason, took, lifecycle.Expired)
	}
}

// P31: a container without a hook is named, once, and the pod is one drain.
func TestP31PartialHook(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "envoy"})
	}, quick)
	c := s.connect(s.serve())
	s.delete(60)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	s.annotate(map[string]string{})
	if n := len(s.helper.drains.list()); n != 1 {
		t.Errorf("%d drains", n)
	}
	c.end(t)
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
	s.eventNaming("PartialHook: ", "envoy")
	n := 0
	for _, e := range s.events() {
		if strings.HasPrefix(e, "PartialHook") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d Events, want one: %q", n, s.events())
	}
}

// A pod that has ended does not stand in the way of one that has its address now.
func TestEndedPodsAreIgnored(t *testing.T) {
	t.Parallel()
	for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
		s := newScene(t, nil, quick)
		other := newPod(s.lab, "uid-0")
		other.Name, other.Status.Phase = "job-1", phase
		_, err := s.api.CoreV1().Pods(namespace).Create(t.Context(), other, metav1.CreateOptions{})
		must(t, err)
		s.delete(60)
		s.withdraw()
		if a := s.hook(); a.Reason != lifecycle.Drained {
			t.Errorf("%s: reason %s", phase, a.Reason)
		}
	}
}

// A slice that somebody made for addresses, without saying whose, routes to the pod
// as well.
func TestSliceByAddress(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	slice := newSlice(s.pod, true)
	slice.Name, slice.Endpoints[0].TargetRef, slice.Endpoints[0].Conditions = "by-hand", nil, discoveryv1.EndpointConditions{}
	_, err := s.api.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), slice, metav1.CreateOptions{})
	must(t, err)
	s.delete(900)
	s.withdraw()
	s.eventually("withdrawing", func() error {
		if a := s.ask(lifecycle.DrainRequest{}); a.Phase != "withdrawing" {
			return errors.New("phase is " + a.Phase)
		}
		return nil
	})
	must(t, s.api.DiscoveryV1().EndpointSlices(namespace).Delete(t.Context(), "by-hand", metav1.DeleteOptions{}))
	begin := time.Now()
	if a := s.hook(); a.Reason != lifecycle.Drained || time.Since(begin) > 20*time.Second {
		t.Errorf("%s after %s", a.Reason, time.Since(begin))
	}
}

// The cache keeps our annotations and what a drain needs, and nothing else.
func TestTrim(t *testing.T) {
	priority := int32(7)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", UID: "uid-1",
			Labels: map[string]string{"app": "web"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			Annotations: map[string]string{"conndrain.io/settle": "3s", corev1.LastAppliedConfigAnnotation: "{}"},
		},
		Spec: corev1.PodSpec{
			NodeName: "n1", Priority: &priority, HostPID: true, Volumes: []corev1.Volume{{Name: "data"}},
			Containers: []corev1.Container{{Name: "web", Image: "web", Env: []corev1.EnvVar{{Name: "A"}}, Lifecycle: execHook("/prestop")}},
		},
		Status: corev1.PodStatus{Message: "x", PodIPs: []corev1.PodIP{{IP: netip.MustParseAddr("10.0.0.1").String()}}},
	}
	for range 2 { // an informer may do it again
		if _, err := trim(pod); err != nil {
			t.Fatal(err)
		}
		c := pod.Spec.Containers[0]
		if len(pod.Annotations) != 1 || pod.Annotations["conndrain.io/settle"] != "3s" || !hooked(&c) || *pod.Spec.Priority != 7 || !pod.Spec.HostPID || len(addressesOf(pod)) != 1 {
			t.Errorf("what is needed is gone: %+v", pod)
		}
		if pod.Labels != nil || pod.ManagedFields != nil || pod.Spec.Volumes != nil || c.Image != "" || c.Env != nil || pod.Status.Message != "" {
			t.Errorf("what is not needed is kept: %+v", pod)
		}
	}
}
