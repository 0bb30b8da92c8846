package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// Config says what a Helper serves and where.
type Config struct {
	// Node is the name of the node that the helper runs on.
	Node string
	// Addresses are the node's own, on which it listens; at least one.
	Addresses []netip.Addr
	// APIPort takes hooks, MetricsPort scrapes and probes.
	APIPort, MetricsPort uint16
	// MaxDrain caps every drain. 0 is off.
	MaxDrain time.Duration
	// SystemBus is the socket of the host's system D-Bus, which tells of a node
	// shutdown. Empty, or a socket that is not there, leaves it to the Node.
	SystemBus string
	// ShutdownWindow is how long the kubelet gives pods when the node shuts down; 0
	// leaves it to KubeletConfig, the path of the kubelet's configuration, which may
	// be empty.
	ShutdownWindow time.Duration
	KubeletConfig  string
	// Disabled makes every hook return after its own fallback sleep: no sessions are
	// read then, and nothing else is done for the pod.
	Disabled bool
	// Observe reads the sessions of pods without a hook when they are deleted; nil
	// leaves them alone.
	Observe *conntrack.Reader
	// LocalSocket is where the helper answers people who run a command in its
	// container; empty is nowhere.
	LocalSocket string
	// Version is the helper's, for people.
	Version string
	// Policy is how long a release waits when nothing blocks any more.
	Policy lifecycle.Policy
	// Logger gets state changes; nil discards them.
	Logger *slog.Logger
}

// Defaults fills what is not set.
func (c *Config) Defaults() {
	if c.APIPort == 0 {
		c.APIPort = lifecycle.APIPort
	}
	if c.MetricsPort == 0 {
		c.MetricsPort = lifecycle.MetricsPort
	}
	if c.Policy == (lifecycle.Policy{}) {
		c.Policy = lifecycle.Policy{Settle: lifecycle.DefaultSettle, SettleMax: lifecycle.DefaultSettleMax}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Validate returns all that is wrong, joined, or nil.
func (c Config) Validate() error {
	var errs []error
	if c.Node == "" {
		errs = append(errs, errors.New("the node has no name: set NODE_NAME from spec.nodeName"))
	}
	if len(c.Addresses) == 0 {
		errs = append(errs, errors.New("the node has no address: set HOST_IPS from status.hostIPs"))
	}
	for _, a := range c.Addresses {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			errs = append(errs, fmt.Errorf("address %s cannot be listened on: name the node's own", a))
		}
	}
	if c.APIPort == c.MetricsPort {
		errs = append(errs, fmt.Errorf("port %d is for hooks or for scrapes, not for both", c.APIPort))
	}
	if c.MaxDrain < 0 {
		errs = append(errs, fmt.Errorf("max-drain %s is negative", c.MaxDrain))
	}
	if c.ShutdownWindow < 0 {
		errs = append(errs, fmt.Errorf("shutdown-window %s is negative", c.ShutdownWindow))
	}
	return errors.Join(errs...)
}
