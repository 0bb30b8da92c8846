package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// These tests are cases from the field, by their numbers, with the exec hook on a real cluster.

// stream is a WebSocket of a client on n2 to a pod on n1 that has our hook.
type stream struct {
	space
	pod    corev1.Pod
	client corev1.Pod
}

func openStream(t *testing.T, grace int64, lasts time.Duration) stream {
	t.Helper()
	s := productSpace(t)
	pod, service := s.serve(server{name: "web", node: "n1", onTerm: "exit", hook: true, quiet: true, grace: grace})
	const protocol = "websocket"
	s.download("client", "n2", traffic.Client{
		Protocol: protocol, Address: addressOf(service.Spec.ClusterIP, protocol),
		Transfer: traffic.Transfer{Bytes: 1 << 20, Duration: lasts}, Count: 1,
	})
	s.established("n1", pod.Status.PodIP, portOf(protocol))
	var client *corev1.Pod
	s.eventually("the client's address is known", func(ctx context.Context) (err error) {
		client, err = s.c.Client.CoreV1().Pods(s.name).Get(ctx, "client", metav1.GetOptions{})
		if err == nil && client.Status.PodIP == "" {
			err = errors.New("it is not") // its connection can be there before its status is
		}
		return err
	})
	return stream{space: s, pod: pod, client: *client}
}

// P6: a WebSocket that is open when its pod is deleted ends before the pod does, and the pod right after it.
func TestP6WebSocketEndsBeforeItsPod(t *testing.T) {
	t.Parallel()
	const lasts, budget = 12 * time.Second, 40 * time.Second
	s := openStream(t, 50, lasts)
	drained := s.metric("n1", `conndrain_drain_duration_seconds_count{reason="Drained"}`)
	begin := time.Now()
	s.kubectl("delete", "pod", s.pod.Name, "--wait=false")
	s.event(s.pod, "Draining", "for 1 session", s.client.Status.PodIP+":", "port 8080/tcp", "older than the drain")

	s.gone(s.pod)
	gone := time.Now()
	got := s.report("client")
	want := traffic.Report{Protocol: "websocket", Started: 1, Completed: 1, Bytes: 1 << 20}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	client, err := s.c.Client.CoreV1().Pods(s.name).Get(t.Context(), s.client.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended := client.Status.ContainerStatuses[0].State.Terminated.FinishedAt.Time // in whole seconds
	t.Logf("pod went %s after its deletion, %s after its client's end; its node's helper has %.0f MB in memory",
		gone.Sub(begin), gone.Sub(ended), s.metric("n1", "process_resident_memory_bytes")/1e6)
	if gone.Sub(begin) >= budget {
		t.Errorf("pod went %s after its deletion, at its deadline and not after its last session", gone.Sub(begin))
	}
	s.event(s.pod, "Drained", "The last session has ended")
	if n := s.metric("n1", `conndrain_drain_duration_seconds_count{reason="Drained"}`); n < drained+1 {
		t.Errorf("%v drains ended as Drained, %v before", n, drained)
	}
}

// P7: a stream that never ends is cut at the deadline, which keeps the reserve for the application; it is counted, and
// an Event names its client.
func TestP7EndlessStreamIsCutAtTheDeadline(t *testing.T) {
	t.Parallel()
	const grace, budget = 20 * time.Second, 16 * time.Second
	s := openStream(t, int64(grace.Seconds()), 10*time.Minute)
	cut := s.metric("n1", `conndrain_sessions_cut_total{activity="active"}`)
	s.kubectl("delete", "pod", s.pod.Name, "--wait=false")
	text := s.event(s.pod, "DrainExpired", "1 session cut", s.client.Status.PodIP+":")
	if after := secondsAfter(t, text); after < budget || after > grace {
		t.Errorf("expired %s after the hook's start, want %s of a grace of %s", after, budget, grace)
	}
	got := s.report("client")
	if got.Cut != 1 || got.Completed != 0 {
		t.Errorf("report %+v, want the stream cut", got)
	}
	s.gone(s.pod)
	if n := s.metric("n1", `conndrain_sessions_cut_total{activity="active"}`); n < cut+1 {
		t.Errorf("%v active sessions cut, %v before", n, cut)
	}
}

// P1: a container that fails its liveness probe is restarted without a wait for the session that goes on in its pod.
func TestP1LivenessFailureDoesNotDrain(t *testing.T) {
	t.Parallel()
	s := productSpace(t)
	before := s.metric("n1", `conndrain_drain_duration_seconds_count{reason="NotTerminating"}`)
	tookBefore := s.metric("n1", `conndrain_drain_duration_seconds_sum{reason="NotTerminating"}`)
	pod, service := s.serve(server{name: "web", node: "n1", onTerm: "exit", hook: true, grace: 100, change: func(spec *corev1.PodSpec) {
		spec.Containers[0].LivenessProbe = &corev1.Probe{
			// nobody listens there
			ProbeHandler:        corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9)}},
			InitialDelaySeconds: 15, PeriodSeconds: 1, FailureThreshold: 1,
		}
	}})
	s.download("client", "n2", traffic.Client{
		Protocol: "websocket", Address: addressOf(service.Spec.ClusterIP, "websocket"),
		Transfer: traffic.Transfer{Bytes: 1 << 20, Duration: 10 * time.Minute}, Count: 1,
	})
	s.established("n1", pod.Status.PodIP, portOf("websocket"))
	var ran time.Duration
	s.eventually("the container is restarted", func(ctx context.Context) error {
		now, err := s.c.Client.CoreV1().Pods(s.name).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := now.Status.ContainerStatuses[0]
		if last := status.LastTerminationState.Terminated; last != nil {
			ran = last.FinishedAt.Sub(last.StartedAt.Time)
			return nil
		}
		return fmt.Errorf("its state is %+v", status.State)
	})
	t.Logf("ran for %s", ran)
	// its probe fails after 16 s, and a drain would take 90 s more
	if ran > 40*time.Second {
		t.Errorf("container ran for %s, its hook waited for the session", ran)
	}
	if n := s.metric("n1", `conndrain_drain_duration_seconds_count{reason="NotTerminating"}`); n < before+1 {
		t.Errorf("%v hooks ended as NotTerminating, %v before", n, before)
	} else if took := (s.metric("n1", `conndrain_drain_duration_seconds_sum{reason="NotTerminating"}`) - tookBefore) / (n - before); took > 15 {
		t.Errorf("such a hook took %.1f s, want 3", took)
	}
}

// P27: a second delete with a shorter grace counts from the first hook's start, and the hook that is run again joins.
func TestP27SecondDeleteShortensTheDrain(t *testing.T) {
	t.Parallel()
	const grace, budget = 20 * time.Second, 16 * time.Second
	s := openStream(t, 900, 10*time.Minute)
	s.kubectl("delete", "pod", s.pod.Name, "--wait=false")
	s.event(s.pod, "Draining", "for 1 session")
	s.kubectl("delete", "pod", s.pod.Name, "--wait=false", "--grace-period", fmt.Sprint(int(grace.Seconds())))
	text := s.event(s.pod, "DrainExpired", "1 session cut")
	if after := secondsAfter(t, text); after < budget || after > grace {
		t.Errorf("expired %s after the first hook's start, want %s", after, budget)
	}
	s.gone(s.pod)
}
