package cluster

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"
)

// Families are the IP families of a cluster's nodes, pods and Services.
type Families string

// With DualStack the first family of the cluster is IPv4.
const (
	IPv4      Families = "IPv4"
	IPv6      Families = "IPv6"
	DualStack Families = "DualStack"
)

// maxNodes is what the cluster's address plan has room for.
const maxNodes = 200

// minMonitorGracePeriod leaves a kubelet that renews its lease four times in it some seconds to do so.
const minMonitorGracePeriod = 12 * time.Second

// AuditLog is a file on the machine of the control plane.
const AuditLog = "/var/log/kube-apiserver-audit.log"

// Options say what a cluster looks like. The zero value is one node with IPv4 and nftables.
type Options struct {
	Name      string   // default: one that no other cluster of this machine has
	Nodes     int      // default 1
	ProxyMode string   // of kube-proxy: nftables (default) or iptables
	Families  Families // default IPv4

	FeatureGates map[string]bool // of every component

	// The kubelet's graceful node shutdown; off when both are zero, as in Kubernetes.
	ShutdownGracePeriod             time.Duration
	ShutdownGracePeriodCriticalPods time.Duration

	// NodeMonitorGracePeriod is how long a node may be silent before it is called NotReady; default 40 s.
	NodeMonitorGracePeriod time.Duration

	// AuditUser is whose requests the API server writes down, each in lines of JSON in AuditLog on Control.
	AuditUser string

	Progress io.Writer `json:"-"` // what is being done, for a person; default: nowhere
	Stay     bool      // the cluster outlives this process, until somebody calls Stop
}

// Defaults fills what is not set.
func (o *Options) Defaults() {
	if o.Name == "" {
		o.Name = uniqueName()
	}
	if o.Nodes == 0 {
		o.Nodes = 1
	}
	if o.ProxyMode == "" {
		o.ProxyMode = "nftables"
	}
	if o.Families == "" {
		o.Families = IPv4
	}
	if o.NodeMonitorGracePeriod == 0 {
		o.NodeMonitorGracePeriod = 40 * time.Second
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
}

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)

// Validate returns every mistake at once.
func (o *Options) Validate() error {
	var errs []error
	if !validName.MatchString(o.Name) {
		errs = append(errs, fmt.Errorf("cluster name %q: use up to 31 of a-z, 0-9 and -", o.Name))
	}
	if o.Nodes < 1 || o.Nodes > maxNodes {
		errs = append(errs, fmt.Errorf("%d nodes: use 1 to %d", o.Nodes, maxNodes))
	}
	if o.ProxyMode != "nftables" && o.ProxyMode != "iptables" {
		errs = append(errs, fmt.Errorf("kube-proxy mode %q: use nftables or iptables", o.ProxyMode))
	}
	if o.Families != IPv4 && o.Families != IPv6 && o.Families != DualStack {
		errs = append(errs, fmt.Errorf("IP families %q: use %s, %s or %s", o.Families, IPv4, IPv6, DualStack))
	}
	if o.ShutdownGracePeriodCriticalPods > o.ShutdownGracePeriod {
		errs = append(errs, fmt.Errorf("shutdown grace period of critical pods (%s) is longer than the whole (%s)",
			o.ShutdownGracePeriodCriticalPods, o.ShutdownGracePeriod))
	}
	if o.NodeMonitorGracePeriod < minMonitorGracePeriod {
		errs = append(errs, fmt.Errorf("node monitor grace period %s: use at least %s",
			o.NodeMonitorGracePeriod, minMonitorGracePeriod))
	}
	return errors.Join(errs...)
}
