package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/conndrain/conndrain/e2e/build"
	"github.com/conndrain/conndrain/e2e/machine"
)

// Open finds a cluster that another process started. Closing it is the same as with one's own: Stop.
func Open(name string) (*Cluster, error) {
	dir := filepath.Join(stateRoot, name)
	b, err := os.ReadFile(filepath.Join(dir, optionsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open cluster %s: there is none: start one with make cluster-up", name)
	}
	if err != nil {
		return nil, fmt.Errorf("open cluster %s: %w", name, err)
	}
	var o Options
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, fmt.Errorf("open cluster %s: %w", name, err)
	}
	o.Defaults()
	c := &Cluster{Options: o, dir: dir, plan: plan{o.Families}}
	c.Outside = c.network().namespace("outside")
	c.Control = c.newNode("control", addrs(c.plan.host(controlNumber)), build.Artifacts{})
	for i := 1; i <= o.Nodes; i++ {
		c.Nodes = append(c.Nodes, c.newNode(nodeName(i), addrs(c.plan.host(nodeNumber(i))), build.Artifacts{}))
	}
	for _, n := range c.machines() {
		if n.spec, err = machine.Open(n.spec.Dir); err != nil {
			return nil, fmt.Errorf("open cluster %s: %w", name, err)
		}
	}
	if err := c.connect(); err != nil {
		return nil, fmt.Errorf("open cluster %s: %w", name, err)
	}
	return c, nil
}

// connect makes the client, whose connections start in the namespace Outside.
func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	config.Dial = c.Outside.Dial
	config.QPS, config.Burst = 100, 200 // tests poll
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	c.Config, c.Client = config, client
	return nil
}

// writePrograms fills Bin: a kubectl that runs in the cluster's network, and node, which runs a command on a node.
func (c *Cluster) writePrograms(a build.Artifacts) error {
	kubectl := fmt.Sprintf("#!/bin/sh\nexec nsenter --net=%s -- %s \"$@\"\n",
		c.Outside.path, filepath.Join(a.Kubernetes, "kubectl"))
	node := fmt.Sprintf(`#!/bin/sh
# node NAME COMMAND...: runs the command on a machine of the cluster
name=$1
shift
if ! nspawn=$(cat %s/machines/"$name"/nspawn.pid 2>/dev/null); then
	echo "node: no machine $name is running; name one of control, n1, n2, ..." >&2
	exit 1
fi
init=$(cat /proc/"$nspawn"/task/"$nspawn"/children)
exec nsenter --target "${init%%%% *}" --mount --uts --ipc --net --pid --cgroup --root --wd -- \
	/usr/bin/env -i PATH=%s HOME=/root "TERM=$TERM" "$@"
`, c.dir, machine.SearchPath)
	for name, script := range map[string]string{"kubectl": kubectl, "node": node} {
		if err := writeTreeFile(filepath.Join(c.Bin(), name), []byte(script)); err != nil {
			return fmt.Errorf("write program %s: %w", name, err)
		}
		if err := os.Chmod(filepath.Join(c.Bin(), name), 0o755); err != nil {
			return fmt.Errorf("write program %s: %w", name, err)
		}
	}
	return nil
}

// stay gives the cluster to nobody: it goes on when this process ends, until somebody stops it.
func (c *Cluster) stay() error {
	if err := writeFile(c.dir, stayFile, nil); err != nil {
		return err
	}
	err := c.owner.Close()
	c.owner = nil
	return err
}

func hostPort(a netip.Addr, port int) string { return net.JoinHostPort(a.String(), strconv.Itoa(port)) }
