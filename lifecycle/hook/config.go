package hook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// ServiceHost finds a helper where nothing names the node: its Service leads to
// the one on the same node.
const ServiceHost = "conndrain-node.conndrain-system"

// Config says how a hook waits.
type Config struct {
	// Node is the helper's host, with or without a port; empty means ServiceHost.
	Node string
	// HostIP is the node's address, if it is known beside Node.
	HostIP string
	// Grace is the pod's grace period, for when no helper ever tells a deadline.
	Grace time.Duration
	// FallbackSleep is the least wait without a helper.
	FallbackSleep time.Duration
	// Ports are the local ports that count while no helper answers; empty means every
	// port that somebody listens on. On the node's own network nothing else counts.
	Ports []uint16
	// Serves are ports that the hook itself listens on, which never count.
	Serves []uint16
	// TokenFile holds a token that proves which pod asks, for pods on the node's own
	// network; it is read for each request. Empty means none.
	TokenFile string
	// NoLearning keeps a sidecar from looking at the pod's connections before a drain.
	// What a request is on them it then has to learn during it.
	NoLearning bool
	// Version is told to the helper.
	Version string
	// Logger gets what happens; nil discards it.
	Logger *slog.Logger

	// look is a look at the pod's own sockets.
	look func(context.Context) (sockdiag.Look, error)
	// spent is what this process has spent of a CPU; nil asks the kernel.
	spent func() time.Duration
	// transport leads to the helper.
	transport http.RoundTripper
}

// Defaults fills what is not set.
func (c *Config) Defaults() {
	if c.Node == "" {
		c.Node = ServiceHost
	}
	if c.Grace == 0 {
		c.Grace = lifecycle.DefaultGrace
	}
	if c.FallbackSleep == 0 {
		c.FallbackSleep = lifecycle.DefaultFallbackSleep
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.look == nil {
		c.look = sockdiag.TakeTraffic
	}
	if c.transport == nil {
		c.transport = newTransport()
	}
}

// Validate returns all that is wrong, joined, or nil.
func (c Config) Validate() error {
	var errs []error
	if _, err := helperAddress(c.Node); err != nil {
		errs = append(errs, err)
	}
	if c.Grace < 0 {
		errs = append(errs, fmt.Errorf("grace %s is negative", c.Grace))
	}
	if c.FallbackSleep < 0 {
		errs = append(errs, fmt.Errorf("fallback-sleep %s is negative", c.FallbackSleep))
	}
	for _, p := range c.Ports {
		if p == 0 {
			errs = append(errs, errors.New("port 0 is out of range: use 1 to 65535"))
		}
	}
	return errors.Join(errs...)
}

// helperAddress gives a node the helper's port, unless it names one. IPv6
// addresses may stand in brackets or not.
func helperAddress(node string) (string, error) {
	if host, port, err := net.SplitHostPort(node); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || host == "" {
			return "", fmt.Errorf("node %q: use host:port with a port of 1 to 65535", node)
		}
		return node, nil
	}
	host := hostOf(node)
	if host == "" || strings.ContainsAny(host, "[]/ ") {
		return "", fmt.Errorf("node %q: use a host name or an address", node)
	}
	return net.JoinHostPort(host, strconv.Itoa(lifecycle.APIPort)), nil
}

// hostOf is a node without its port and brackets.
func hostOf(node string) string {
	if host, _, err := net.SplitHostPort(node); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(node, "["), "]")
}

// newEyes look at the pod's own sockets.
func newEyes(c Config, learns bool) *looks.Eyes {
	return looks.NewEyes(looks.Looker{Take: c.look, Spent: c.spent, Scope: sockdiag.Scope{Except: c.Serves}}, learns)
}
