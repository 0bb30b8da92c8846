package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/cluster"
	"github.com/conndrain/conndrain/e2e/machine"
)

// What happens to nodes, one after the other on a cluster of its own.
func TestNodes(t *testing.T) {
	t.Parallel()
	c := startFor(t, cluster.Options{
		Nodes:                           2,
		NodeMonitorGracePeriod:          16 * time.Second,
		ShutdownGracePeriod:             20 * time.Second,
		ShutdownGracePeriodCriticalPods: 5 * time.Second,
	})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster.Cluster, *cluster.Node)
	}{
		{"reboot", testReboot},
		{"power off", testPowerOff},
		{"crash", testCrash},
		{"pause", testPause},
		{"cut network", testCutNetwork},
		{"kill kubelet", testKillKubelet},
	} {
		if !t.Run(test.name, func(t *testing.T) {
			n, err := c.Node("n2")
			if err != nil {
				t.Fatal(err)
			}
			if err := n.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			test.run(t, c, n)
		}) {
			break // the node may be anything now
		}
	}
}

// A reboot is what an operator's is: logind announces it, the kubelet holds it back until its pods have ended, the kernel's
// boot id changes, and Kubernetes sees the node again as the one it knew.
func testReboot(t *testing.T, c *cluster.Cluster, n *cluster.Node) {
	s := newSpace(t, c)
	pod, _ := s.serve(server{name: "web", node: n.Name, onTerm: "exit", preStop: 4, grace: 30})
	before, err := n.BootID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reported := nodeOf(t, c, n)
	if reported.Status.NodeInfo.BootID != before {
		t.Errorf("kubelet reports boot id %s, want %s", reported.Status.NodeInfo.BootID, before)
	}
	locks, err := n.Run(t.Context(), "systemd-inhibit", "--list", "--no-pager")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(locks, "kubelet") {
		t.Errorf("nobody named kubelet holds a lock of logind:\n%s", locks)
	}

	begin := time.Now()
	if err := n.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 4*time.Second {
		t.Errorf("reboot took %s, less than the hook of the pod that it should have waited for", took)
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := nodeOf(t, c, n)
	if after.UID != reported.UID {
		t.Errorf("node came back as another object, %s instead of %s", after.UID, reported.UID)
	}
	if after.Status.NodeInfo.BootID == before {
		t.Errorf("boot id is still %s", before)
	}
	s.eventually("a pod takes the place of the one that was shut down", func(ctx context.Context) error {
		pods, err := s.pods(ctx, "web")
		if err != nil {
			return err
		}
		for _, p := range pods {
			if p.UID != pod.UID && p.Status.Phase == corev1.PodRunning {
				return nil
			}
		}
		return errors.New("no other pod is running")
	})
}

func testPowerOff(t *testing.T, c *cluster.Cluster, n *cluster.Node) {
	if err := n.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Run(t.Context(), "true"); !errors.Is(err, machine.ErrDown) {
		t.Errorf("run on a machine that is off: %v, want ErrDown", err)
	}
	awaitNotReady(t, c, n)
	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func testCrash(t *testing.T, c *cluster.Cluster, n *cluster.Node) {
	if err := n.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitNotReady(t, c, n)
	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func testPause(t *testing.T, c *cluster.Cluster, n *cluster.Node) {
	before, err := n.BootID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitNotReady(t, c, n)
	if err := n.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after, err := n.BootID(t.Context()); err != nil || after != before {
		t.Errorf("boot id after the pause is %s (%v), want %s", after, err, before)
	}
}

// The cut node goes on: its API server is away, its processes are not.
func testCutNetwork(t *testing.T, c *cluster.Cluster, n *cluster.Node) {
	if err := n.CutNetwork(); err != nil {
		t.Fatal(err)
	}
	awaitNotReady(t, c, n)
	if state, err := n.Run(t.Context(), "systemctl", "is-active", "kubelet"); err != nil {
		t.Errorf("kubelet of the cut node is %q: %v", state, err)
	}
	if err := n.JoinNetwork(); err != nil {
		t.Fatal(err)
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A kubelet that dies leaves its containers alone, and takes them over when it is back.
func testKillKubelet(t *testing.T, c *cluster.Cluster, n *cluster.Node) {
	s := newSpace(t, c)
	pod, _ := s.serve(server{name: "web", node: n.Name, onTerm: "exit", grace: 30})
	mainPID := func(ctx context.Context) (string, error) {
		return n.Run(ctx, "systemctl", "show", "--property=MainPID", "--value", "kubelet")
	}
	before, err := mainPID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Kill(t.Context(), "kubelet"); err != nil {
		t.Fatal(err)
	}
	s.eventually("systemd starts another kubelet", func(ctx context.Context) error {
		after, err := mainPID(ctx)
		if err == nil && (after == before || strings.TrimSpace(after) == "0") {
			err = fmt.Errorf("its process is %s", strings.TrimSpace(after))
		}
		return err
	})
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	pods, err := s.pods(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 1 || pods[0].UID != pod.UID || pods[0].Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("pods are %+v, want the one from before without a restart", pods)
	}
}

func nodeOf(t *testing.T, c *cluster.Cluster, n *cluster.Node) *corev1.Node {
	t.Helper()
	node, err := c.Client.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// awaitNotReady blocks until Kubernetes has noticed that the node is silent.
func awaitNotReady(t *testing.T, c *cluster.Cluster, n *cluster.Node) {
	t.Helper()
	eventually(t, "node "+n.Name+" is NotReady", func(ctx context.Context) error {
		node, err := c.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return errors.New("it is Ready")
			}
		}
		return nil
	})
}
