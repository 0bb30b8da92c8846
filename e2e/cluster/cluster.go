// Package cluster runs a real Kubernetes cluster on one Linux machine, for tests: a control plane and any number of
// nodes, each a real systemd machine of its own, joined by a switch that nothing of the host is connected to.
//
// The zero Options give a cluster with one node:
//
//	c, err := cluster.Start(ctx, cluster.Options{})
//	...
//	defer c.Stop()
//
// Everything that it makes on the host is below /var/lib/conndrain-e2e or in cgroups recorded there. Stop takes it away,
// and so does the next Start after a run that was killed.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/conndrain/conndrain/e2e/build"
	"github.com/conndrain/conndrain/e2e/machine"
)

// Cluster is a cluster that runs. Its methods are safe for concurrent use, but Stop is called once and last.
type Cluster struct {
	Options Options
	Control *Node   // the machine of the control plane; it is no node of the cluster
	Nodes   []*Node // n1, n2, ...
	Outside Namespace

	Config *rest.Config // an administrator's; it dials from Outside
	Client kubernetes.Interface

	dir   string
	plan  plan
	owner *os.File // nil when the cluster stays
}

// Start builds what is missing, starts a cluster and returns when every node is Ready. It gives up when the context
// ends. A failed Start leaves nothing behind but, when machines ran, their logs in a folder that the error names.
// It needs root, cgroups, overlayfs and Debian 12 with apt; an error says which of them is missing.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o.Defaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	if err := checkHost(); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	artifacts, err := build.Prepare(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	dir, owner, err := claim(o.Name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Options: o, dir: dir, plan: plan{o.Families}, owner: owner}
	if err := c.start(ctx, artifacts); err != nil {
		if logs, keepErr := c.KeepLogs(context.WithoutCancel(ctx), "start-"+o.Name); keepErr == nil {
			err = fmt.Errorf("%w; logs are in %s", err, logs)
		}
		return nil, errors.Join(fmt.Errorf("start cluster %s: %w", o.Name, err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, a build.Artifacts) error {
	begin := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(c.Options.Progress, "%6.1fs %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
	if err := build.Program(ctx, "./cmd/machine", c.supervisor()); err != nil {
		return err
	}
	if err := c.wire(); err != nil {
		return err
	}
	if err := c.configure(a); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	say("network, certificates and files of %d machines made", len(c.machines()))

	g, gctx := errgroup.WithContext(ctx)
	for _, n := range c.machines() {
		g.Go(func() error { return n.boot(gctx) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	say("machines booted")
	if err := c.awaitAPI(ctx); err != nil {
		return err
	}
	say("API ready")
	if err := c.loadPauseImage(ctx); err != nil {
		return err
	}
	if err := c.awaitNodes(ctx); err != nil {
		return err
	}
	say("%d nodes ready", len(c.Nodes))
	if err := c.writePrograms(a); err != nil {
		return err
	}
	if c.Options.Stay {
		return c.stay()
	}
	return nil
}

// Stop ends every process of the cluster at once and removes all that it made on this host. It blocks until that is done,
// for two minutes at most.
func (c *Cluster) Stop() error {
	err := Remove(c.Options.Name)
	if err == nil {
		for _, n := range c.machines() {
			n.reap()
		}
	}
	if c.owner != nil {
		c.owner.Close()
	}
	return err
}

// Node is the node of the given name: n1, n2 and so on.
func (c *Cluster) Node(name string) (*Node, error) {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n, nil
		}
	}
	return nil, fmt.Errorf("find node: cluster %s has none called %q, its nodes are n1 to n%d",
		c.Options.Name, name, len(c.Nodes))
}

// Bin is a folder to put first on PATH: kubectl from inside the cluster's network, and node, which runs a command on one.
func (c *Cluster) Bin() string { return filepath.Join(c.dir, "bin") }

// Kubeconfig is the file of an administrator. Its address is reached from the cluster's namespaces only.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

func (c *Cluster) supervisor() string { return filepath.Join(c.dir, supervisorFile) }

func (c *Cluster) network() network {
	return network{dir: filepath.Join(c.dir, "netns"), plan: c.plan}
}

// machines are the nodes and the control plane's.
func (c *Cluster) machines() []*Node {
	if c.Control == nil {
		return nil // not made yet
	}
	return append([]*Node{c.Control}, c.Nodes...)
}

// wire makes the network of the cluster.
func (c *Cluster) wire() error {
	n := c.network()
	if err := n.makeSwitch(); err != nil {
		return err
	}
	nodes := c.Options.Nodes
	if err := n.makeHost("outside", outsideNumber, nodes); err != nil {
		return err
	}
	if err := n.makeHost("control", controlNumber, nodes); err != nil {
		return err
	}
	for i := 1; i <= nodes; i++ {
		if err := n.makeHost(nodeName(i), nodeNumber(i), nodes); err != nil {
			return err
		}
	}
	c.Outside = n.namespace("outside")
	return nil
}

func nodeName(n int) string { return fmt.Sprintf("n%d", n) }

// newNode describes the machine of the given host name.
func (c *Cluster) newNode(name string, addresses []string, a build.Artifacts) *Node {
	dir := filepath.Join(c.dir, "machines", name)
	return &Node{
		Name:       name,
		Addresses:  addresses,
		network:    c.network(),
		supervisor: c.supervisor(),
		cluster:    c,
		spec: machine.Spec{
			Name:   "conndrain-" + c.Options.Name + "-" + name,
			Host:   name,
			Dir:    dir,
			Rootfs: a.Rootfs,
			NetNS:  c.network().namespace(name).path,
			Cgroup: "conndrain-e2e-" + c.Options.Name + "-" + name,
			Binds: []machine.Bind{
				{Source: a.Kubernetes, Target: "/opt/kubernetes", ReadOnly: true},
				{Source: a.Containerd, Target: "/opt/containerd", ReadOnly: true},
				{Source: c.images(), Target: "/opt/images", ReadOnly: true},
			},
		},
	}
}
