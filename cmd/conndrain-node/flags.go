package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/node"
)

// flags are those of the command.
type flags struct {
	apiPort, metricsPort uint16
	maxDrain             time.Duration
	systemBus            string
	shutdownWindow       time.Duration
	kubeletConfig        string
	kubeconfig           string
	observe              bool
}

func (f *flags) add(fs *pflag.FlagSet) {
	fs.Uint16Var(&f.apiPort, "api-port", lifecycle.APIPort, "where hooks ask, on the node's own addresses")
	fs.Uint16Var(&f.metricsPort, "metrics-port", lifecycle.MetricsPort, "where /metrics, /healthz and /readyz are")
	fs.DurationVar(&f.maxDrain, "max-drain", 0, "the longest that any pod is held (default: what Kubernetes gives it)")
	fs.StringVar(&f.systemBus, "system-bus", node.DefaultSystemBus, "the host's D-Bus socket, to tell a node shutdown by; where it is missing, the Node's status tells")
	fs.DurationVar(&f.shutdownWindow, "shutdown-window", 0, "how long the kubelet gives pods when the node shuts down (default: what --kubelet-config says, else 30s)")
	fs.StringVar(&f.kubeletConfig, "kubelet-config", "", "the kubelet's configuration file, such as /var/lib/kubelet/config.yaml")
	fs.BoolVar(&f.observe, "observe", false, "tell by an Event which sessions pods without a hook still have when they are deleted")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "a file to find the API by (default: the pod's own account)")
}

// config is what the flags and the environment say.
func (f *flags) config(getenv func(string) string) (node.Config, error) {
	c := node.Config{
		Node: getenv("NODE_NAME"), APIPort: f.apiPort, MetricsPort: f.metricsPort, MaxDrain: f.maxDrain,
		SystemBus: f.systemBus, ShutdownWindow: f.shutdownWindow, KubeletConfig: f.kubeletConfig,
	}
	var errs []error
	for text := range strings.SplitSeq(getenv("HOST_IPS"), ",") {
		if text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("HOST_IPS: %w", err))
			continue
		}
		c.Addresses = append(c.Addresses, a)
	}
	if text := getenv("CONNDRAIN_DISABLE"); text != "" {
		var err error
		if c.Disabled, err = strconv.ParseBool(text); err != nil {
			errs = append(errs, fmt.Errorf("CONNDRAIN_DISABLE=%s: it is true or false", text))
		}
	}
	return c, errors.Join(errs...)
}
