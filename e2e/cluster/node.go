package cluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/conndrain/conndrain/e2e/machine"
)

// Limits of what a machine may take, on one that is five times slower than ours.
const (
	bootTimeout = 2 * time.Minute
	downTimeout = 5 * time.Minute // a graceful shutdown first waits for pods
)

// Node is a machine of the cluster: a node, or the control plane's. Its verbs are what an operator or a fault does to a
// machine; each returns when that is done, not when Kubernetes has noticed.
type Node struct {
	Name      string
	Addresses []string // one a family

	spec       machine.Spec
	network    network
	supervisor string
	cluster    *Cluster

	mu    sync.Mutex
	ended chan struct{} // closed when the supervisor has ended; nil when another process started it
}

// Run runs a program on the node and returns what it printed. The error holds what it printed on stderr.
func (n *Node) Run(ctx context.Context, name string, args ...string) (string, error) {
	cmd, err := n.Command(ctx, name, args...)
	if err != nil {
		return "", err
	}
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(out), fmt.Errorf("run %s on %s: %w: %s", name, n.Name, err, strings.TrimSpace(string(exit.Stderr)))
		}
		return string(out), fmt.Errorf("run %s on %s: %w", name, n.Name, err)
	}
	return string(out), nil
}

// Command is a program to be run on the node. It returns machine.ErrDown when the node is powered off.
func (n *Node) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	return n.spec.Command(ctx, name, args...)
}

// BootID is the kernel's name of the node's present boot.
func (n *Node) BootID(ctx context.Context) (string, error) { return n.spec.BootID(ctx) }

// Namespace is the node's own network namespace.
func (n *Node) Namespace() Namespace { return n.network.namespace(n.Name) }

// Reboot asks the node's systemd for a reboot, as an operator does, and blocks until the node has booted again.
func (n *Node) Reboot(ctx context.Context) error {
	before, err := n.BootID(ctx)
	if err != nil {
		return err
	}
	if _, err := n.Run(ctx, "systemctl", "reboot"); err != nil {
		return err
	}
	return n.await(ctx, downTimeout+bootTimeout, "reboot", func() error {
		now, err := n.BootID(ctx)
		if err != nil {
			return err
		}
		if now == before {
			return errors.New("boot id has not changed")
		}
		return n.isUp(ctx)
	})
}

// PowerOff asks the node's systemd to power off and blocks until the machine is off.
func (n *Node) PowerOff(ctx context.Context) error {
	if _, err := n.Run(ctx, "systemctl", "poweroff"); err != nil {
		return err
	}
	return n.awaitOff(ctx)
}

// Crash takes the power away: every process of the node ends at once, without a signal to anybody.
func (n *Node) Crash(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	return pollUntil(ctx, func() error {
		if left := n.spec.Group().Kill(); left > 0 {
			return fmt.Errorf("crash %s: %d processes were still there", n.Name, left)
		}
		return nil
	})
}

// PowerOn boots a node that is off and blocks until its systemd is up.
func (n *Node) PowerOn(ctx context.Context) error { return n.boot(ctx) }

// Pause stops every process of the node where it is, as a hypervisor does. Its network still takes packets in.
func (n *Node) Pause(ctx context.Context) error {
	g := n.spec.Group()
	var tried time.Time
	return n.await(ctx, bootTimeout, "pause", func() error {
		switch {
		case g.Frozen():
			return nil
		case tried.IsZero():
			tried = time.Now()
			if err := g.Freeze(true); err != nil {
				return err
			}
		case time.Since(tried) > freezeTimeout:
			tried = time.Time{}
			if err := g.Freeze(false); err != nil {
				return err
			}
		}
		return errors.New("some processes still run")
	})
}

// freezeTimeout is how long a freeze is waited for before all go on for a moment and it is tried anew. One that has
// just forked waits for its child and cannot be stopped while that is: with cgroups of version 1 this has no end.
const freezeTimeout = 2 * time.Second

// Resume lets a paused node go on.
func (n *Node) Resume() error {
	if err := n.spec.Group().Freeze(false); err != nil {
		return fmt.Errorf("resume %s: %w", n.Name, err)
	}
	return nil
}

// CutNetwork takes the node off the network. What it sends is lost and nothing reaches it, without an error to anybody.
func (n *Node) CutNetwork() error { return n.setCable(false) }

// JoinNetwork ends CutNetwork.
func (n *Node) JoinNetwork() error { return n.setCable(true) }

func (n *Node) setCable(on bool) error {
	if err := n.network.setCable(n.Name, on); err != nil {
		return fmt.Errorf("change network of %s: %w", n.Name, err)
	}
	return nil
}

// Kill ends a component (kubelet, containerd, kube-proxy, ...) with SIGKILL; systemd starts it again after a second.
func (n *Node) Kill(ctx context.Context, component string) error {
	_, err := n.Run(ctx, "systemctl", "kill", "--kill-who=main", "--signal=KILL", component)
	return err
}

// StopComponent stops a component and leaves it stopped; what it started, containers for one, goes on.
func (n *Node) StopComponent(ctx context.Context, component string) error {
	_, err := n.Run(ctx, "systemctl", "stop", component)
	return err
}

// StartComponent ends StopComponent.
func (n *Node) StartComponent(ctx context.Context, component string) error {
	_, err := n.Run(ctx, "systemctl", "start", component)
	return err
}

// boot starts the machine's supervisor and blocks until its systemd is up.
func (n *Node) boot(ctx context.Context) error {
	if _, err := n.spec.Init(); err == nil {
		return fmt.Errorf("boot %s: it is running", n.Name)
	}
	n.reap()
	cmd, err := machine.Supervise(n.spec, n.supervisor)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	n.mu.Lock()
	n.ended = ended
	n.mu.Unlock()
	go func() {
		defer close(ended)
		_ = cmd.Wait() // its console log has the reason
	}()
	return n.await(ctx, bootTimeout, "boot", func() error { return n.isUp(ctx) })
}

// isUp is nil when the machine can be worked with: systemd, D-Bus and logind run. Kubernetes may still be starting.
func (n *Node) isUp(ctx context.Context) error {
	out, err := n.Run(ctx, "systemctl", "is-active", "systemd-logind.service")
	if err != nil {
		return fmt.Errorf("%w (logind is %q)", err, strings.TrimSpace(out))
	}
	return nil
}

func (n *Node) awaitOff(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	return pollUntil(ctx, func() error {
		if !n.spec.Group().Empty() {
			return fmt.Errorf("power off %s: it still runs", n.Name)
		}
		return nil
	})
}

// reap waits for a supervisor that was killed or has ended.
func (n *Node) reap() {
	n.mu.Lock()
	ended := n.ended
	n.mu.Unlock()
	if ended != nil {
		<-ended
	}
}
