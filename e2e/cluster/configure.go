package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/conndrain/conndrain/e2e/build"
	"github.com/conndrain/conndrain/e2e/machine"
)

var (
	controlComponents = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	nodeComponents    = []string{"containerd", "kubelet", "kube-proxy"}
)

// onDisk are folders that a machine has on the host's own file system: an overlay does not go on another, and etcd and
// the runtime write a lot.
var onDisk = []string{"var/lib/containerd", "var/lib/kubelet", "var/lib/etcd"}

// configure describes every machine and writes the files that it boots with.
func (c *Cluster) configure(a build.Artifacts) error {
	if err := os.MkdirAll(c.images(), 0o755); err != nil {
		return fmt.Errorf("make folder of images: %w", err)
	}
	ca, err := newAuthority("https://" + hostPort(c.plan.apiServer(), 6443))
	if err != nil {
		return err
	}
	if err := ca.writeKubeconfig(c.dir, "admin", "kubernetes-admin", "system:masters"); err != nil {
		return err
	}
	c.Control = c.newNode("control", addrs(c.plan.host(controlNumber)), a)
	for i := 1; i <= c.Options.Nodes; i++ {
		c.Nodes = append(c.Nodes, c.newNode(nodeName(i), addrs(c.plan.host(nodeNumber(i))), a))
	}
	data := c.fileData()
	if err := c.configureControl(ca, data); err != nil {
		return err
	}
	for i, n := range c.Nodes {
		data.Name, data.NodeIPs, data.Pods = n.Name, n.Addresses, texts(c.plan.pods(i+1))
		if err := configureNode(n, ca, data); err != nil {
			return err
		}
	}
	return c.save()
}

func (c *Cluster) fileData() fileData {
	data := fileData{
		Options:    c.Options,
		Name:       "control",
		AllPods:    texts(c.plan.allPods()),
		Services:   texts(c.plan.services()),
		Anywhere:   texts(c.plan.anywhere()),
		APIServer:  c.plan.apiServer().String(),
		DNS:        c.plan.dns().String(),
		PauseImage: pauseImage,
	}
	for _, n := range c.machines() {
		for _, address := range n.Addresses {
			data.Hosts = append(data.Hosts, hostEntry{address, n.Name})
		}
	}
	return data
}

// prepare writes what every machine has.
func prepare(n *Node, data fileData, tree string, components []string) error {
	for _, dir := range onDisk {
		disk := bindOf(n, dir)
		n.spec.Binds = append(n.spec.Binds, disk)
		if err := os.MkdirAll(disk.Source, 0o755); err != nil {
			return fmt.Errorf("make folder of %s: %w", n.Name, err)
		}
	}
	if err := n.spec.Write(); err != nil {
		return err
	}
	if err := writeFiles(n.spec.Upper(), data, "every", tree); err != nil {
		return err
	}
	return enable(n.spec.Upper(), components)
}

func (c *Cluster) configureControl(ca *authority, data fileData) error {
	n := c.Control
	if err := prepare(n, data, "control", controlComponents); err != nil {
		return err
	}
	etc := filepath.Join(n.spec.Upper(), "etc/kubernetes")
	names := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1", "::1"}, n.Addresses...)
	for _, services := range c.plan.services() {
		names = append(names, services.Addr().Next().String()) // the API's own Service has the first one
	}
	if err := ca.writeCA(etc); err != nil {
		return err
	}
	if err := ca.writePair(etc, "apiserver", "kube-apiserver", nil, names...); err != nil {
		return err
	}
	if err := ca.writePair(etc, "kubelet-client", "kube-apiserver", []string{"system:masters"}); err != nil {
		return err
	}
	if err := writeServiceAccountKey(etc); err != nil {
		return err
	}
	if err := ca.writeKubeconfig(etc, "controller-manager", "system:kube-controller-manager"); err != nil {
		return err
	}
	return ca.writeKubeconfig(etc, "scheduler", "system:kube-scheduler")
}

func configureNode(n *Node, ca *authority, data fileData) error {
	if err := prepare(n, data, "node", nodeComponents); err != nil {
		return err
	}
	etc := filepath.Join(n.spec.Upper(), "etc/kubernetes")
	user := "system:node:" + n.Name
	if err := ca.writeCA(etc); err != nil {
		return err
	}
	names := append([]string{n.Name}, n.Addresses...)
	if err := ca.writePair(etc, "kubelet", user, []string{"system:nodes"}, names...); err != nil {
		return err
	}
	if err := ca.writeKubeconfig(etc, "kubelet", user, "system:nodes"); err != nil {
		return err
	}
	return ca.writeKubeconfig(etc, "kube-proxy", "system:kube-proxy")
}

// bindOf is the host's folder for one of onDisk.
func bindOf(n *Node, dir string) machine.Bind {
	return machine.Bind{Source: filepath.Join(n.spec.Dir, "disk", filepath.Base(dir)), Target: "/" + dir}
}

const optionsFile = "options.json"

// save keeps what Open needs to find the cluster again.
func (c *Cluster) save() error {
	b, err := json.Marshal(c.Options)
	if err != nil {
		return fmt.Errorf("encode options: %w", err)
	}
	return writeFile(c.dir, optionsFile, b)
}
