package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conndrain/conndrain/e2e/cluster"
	"github.com/conndrain/conndrain/e2e/product"
	"github.com/conndrain/conndrain/e2e/traffic"
)

// TestObserveAndDisable has a cluster of its own, because both change what the helper does to every pod.
func TestObserveAndDisable(t *testing.T) {
	t.Parallel()
	c := startFor(t, cluster.Options{Nodes: 1})
	if err := product.Install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Run("observe", func(t *testing.T) { observe(newSpace(t, c)) })
	t.Run("disable", func(t *testing.T) { disable(newSpace(t, c)) })
}

// patchHelper changes the helper's container and blocks until every node has the changed one.
func (s space) patchHelper(change string) {
	s.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"conndrain-node",%s}]}}}}`, change)
	_, err := s.c.Client.AppsV1().DaemonSets(product.Namespace).Patch(
		s.Context(), "conndrain-node", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		s.Fatalf("patch the helper: %v", err)
	}
	s.kubectl("rollout", "status", "daemonset/conndrain-node", "-n", product.Namespace, "--timeout", limit.String())
}

// A rollout of pods without a hook is told of with what it cuts; nothing else happens to it.
func observe(s space) {
	s.patchHelper(`"args":["--observe"]`)
	const protocol = "websocket"
	pod, service := s.serve(server{name: "web", node: "n1", onTerm: "ignore", grace: 10})
	s.download("client", "n1", traffic.Client{
		Protocol: protocol, Address: addressOf(service.Spec.ClusterIP, protocol),
		Transfer: traffic.Transfer{Bytes: 1 << 20, Duration: 10 * time.Minute}, Count: 1,
	})
	s.established("n1", pod.Status.PodIP, portOf(protocol))
	s.kubectl("delete", "pod", pod.Name, "--wait=false")
	s.Log(s.event(pod, "SessionsAtDeletion", "1 session was open", fmt.Sprintf("port %d/tcp", portOf(protocol)), "preStop hook of conndrain"))
	s.gone(pod)
	if n := s.metric("n1", `conndrain_observed_deletions_total{result="sessions"}`); n != 1 {
		s.Errorf("%v deletions with sessions, want 1", n)
	}
	if n := s.metric("n1", "conndrain_sessions_at_deletion_total"); n != 1 {
		s.Errorf("%v sessions at deletion, want 1", n)
	}
}

// A helper that is switched off lets every hook sleep for its fallback, whatever is open, and says so.
func disable(s space) {
	s.patchHelper(`"args":[],"env":[{"name":"CONNDRAIN_DISABLE","value":"true"}]`)
	const sleep = 30 * time.Second // longer than by itself: there has to be time to see it
	const protocol = "websocket"
	pod, service := s.serve(server{name: "web", node: "n1", onTerm: "exit", hook: true, grace: 900, change: func(spec *corev1.PodSpec) {
		spec.Containers[0].Env = append(spec.Containers[0].Env, corev1.EnvVar{Name: "CONNDRAIN_FALLBACK_SLEEP", Value: sleep.String()})
	}})
	s.download("client", "n1", traffic.Client{
		Protocol: protocol, Address: addressOf(service.Spec.ClusterIP, protocol),
		Transfer: traffic.Transfer{Bytes: 1 << 20, Duration: 10 * time.Minute}, Count: 1,
	})
	s.established("n1", pod.Status.PodIP, portOf(protocol))
	begin := time.Now()
	s.kubectl("delete", "pod", pod.Name, "--wait=false")
	s.eventually("status tells of it", func(context.Context) error {
		if got := s.conndrain("status", "-A"); got.code != 0 || !hasAll(got.String(), []string{"switched off (CONNDRAIN_DISABLE)", pod.Name}) {
			return fmt.Errorf("exit %d\n%s", got.code, got)
		}
		return nil
	})
	s.event(pod, "DrainDisabled", "CONNDRAIN_DISABLE")
	s.gone(pod)
	took := time.Since(begin)
	s.Logf("gone after %s", took)
	if took < sleep || took > 5*sleep {
		s.Errorf("pod was gone after %s, want the %s of its hook's fallback sleep", took, sleep)
	}
	if n := s.metric("n1", "conndrain_disabled"); n != 1 {
		s.Errorf("conndrain_disabled is %v", n)
	}
	s.eventually("the drain is counted", func(context.Context) error {
		if n := s.metric("n1", `conndrain_drain_duration_seconds_count{reason="Disabled"}`); n != 1 {
			return fmt.Errorf("%v drains ended as Disabled", n)
		}
		return nil
	})
}
