package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readyTimeout is for an API server or a node, on a machine that is five times slower than ours.
const readyTimeout = 3 * time.Minute

// lookEvery is how often machines are asked for components that died: it costs each of them two processes.
const lookEvery = 2 * time.Second

// await polls until try returns nil. It ends early when the machine's supervisor has ended, and then the error has the last
// lines of the console.
func (n *Node) await(ctx context.Context, timeout time.Duration, verb string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := pollUntil(ctx, func() error {
		err := try()
		if err == nil {
			return nil
		}
		if dead := n.died(); dead != nil {
			return finalError{dead}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", verb, n.Name, err)
	}
	return nil
}

// died is an error when the supervisor, which this process started, has ended.
func (n *Node) died() error {
	n.mu.Lock()
	ended := n.ended
	n.mu.Unlock()
	select {
	case <-ended: // a nil channel: started by another process
		return fmt.Errorf("the machine has ended; its console says:\n%s", lastLines(n.spec.ConsoleLog()))
	default:
		return nil
	}
}

// failedComponent is an error when a component has died too often; systemd tells.
func (n *Node) failedComponent(ctx context.Context) error {
	out, err := n.Run(ctx, "systemctl", "list-units", "--failed", "--plain", "--no-legend")
	if err != nil {
		return nil // not up yet, or down: others say so
	}
	for line := range strings.Lines(out) {
		unit, _, _ := strings.Cut(line, ".service")
		log := filepath.Join(n.spec.LogDir(), unit+".log")
		if _, err := os.Stat(log); err == nil {
			return fmt.Errorf("%s on %s does not start; its last lines:\n%s", unit, n.Name, lastLines(log))
		}
	}
	return nil
}

// awaitReady polls until try returns nil, and gives up when a component of the machines has died too often.
func (c *Cluster) awaitReady(ctx context.Context, what string, machines []*Node, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var looked time.Time
	err := pollUntil(ctx, func() error {
		err := try(ctx)
		if err == nil || time.Since(looked) < lookEvery {
			return err
		}
		looked = time.Now()
		var all []error
		for _, n := range machines {
			all = append(all, n.died(), n.failedComponent(ctx))
		}
		if dead := errors.Join(all...); dead != nil {
			return finalError{dead}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

func (c *Cluster) awaitAPI(ctx context.Context) error {
	return c.awaitReady(ctx, "the API", []*Node{c.Control}, func(ctx context.Context) error {
		return c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// awaitNodes blocks until pods can be made: every node is Ready, and the account that pods run as is there.
func (c *Cluster) awaitNodes(ctx context.Context) error {
	return c.awaitReady(ctx, "nodes", c.machines(), func(ctx context.Context) error {
		for _, n := range c.Nodes {
			if err := n.IsReady(ctx); err != nil {
				return err
			}
		}
		_, err := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// IsReady is nil when Kubernetes calls the node Ready, and that of its present boot.
func (n *Node) IsReady(ctx context.Context) error {
	bootID, err := n.BootID(ctx)
	if err != nil {
		return err
	}
	node, err := n.cluster.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node %s: %w", n.Name, err)
	}
	if node.Status.NodeInfo.BootID != bootID {
		return fmt.Errorf("node %s has not reported since it booted", n.Name)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("node %s is not Ready: %s", n.Name, readyMessage(node))
}

// AwaitReady blocks until IsReady is nil.
func (n *Node) AwaitReady(ctx context.Context) error {
	return n.cluster.awaitReady(ctx, n.Name, []*Node{n}, n.IsReady)
}

func readyMessage(node *corev1.Node) string {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Message
		}
	}
	return "no condition yet"
}

// logLines is how much of a log an error shows.
const logLines = 15

// lastLines are the last of a log, for an error that a person reads; of a panic, the first.
func lastLines(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	from := max(0, len(lines)-logLines)
	for i := from; i >= 0 && len(lines)-i < 10*logLines; i-- {
		if strings.HasPrefix(lines[i], "panic:") {
			from = i
			break
		}
	}
	return strings.Join(lines[from:min(len(lines), from+logLines)], "\n")
}
