// Command conndrain-node is a node's helper: it answers the preStop hooks of the
// node's pods when the last session of their pod has ended.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/node"
)

// version is set at link time (-X main.version=v0.1.0).
var version = "(devel)"

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process even if the first one's way out hangs.
	context.AfterFunc(ctx, stop)
	cmd := newCommand()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "conndrain-node: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	return 0
}

func newCommand() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:   "conndrain-node",
		Short: "Answers the preStop hooks of this node's pods",
		Long: `conndrain-node answers the preStop hooks of this node's pods when the last session
of their pod has ended.

It runs as a DaemonSet with hostNetwork and CAP_NET_ADMIN, and is told by the
environment where it is: NODE_NAME from spec.nodeName, HOST_IPS from status.hostIPs.`,
		Version:       version,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), f) },
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f.add(cmd.Flags())
	cmd.AddCommand(newStatus(), newRelease())
	return cmd
}

// serve wires the parts and runs them until ctx ends.
func serve(ctx context.Context, f *flags) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	klog.SetLogger(logr.FromSlogHandler(log.Handler()))
	c, err := f.config(os.Getenv)
	if err != nil {
		return err
	}
	c.Logger, c.Version, c.LocalSocket = log, version, lifecycle.LocalSocket
	if f.observe {
		// Whole walks of the table are streamed: they hold no CPU for long.
		c.Observe = conntrack.NewReader(conntrack.Config{Snapshot: conntrack.Stream, Logger: log})
	}
	client, err := connect(f.kubeconfig)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	helper, err := node.New(c, client, conntrack.NewReader(conntrack.Config{Logger: log}), registry)
	if err != nil {
		return err
	}
	log.Info("starting", "version", version, "node", c.Node)
	return helper.Run(ctx)
}

// connect returns a client of the API: that of the pod, or of a kubeconfig.
func connect(kubeconfig string) (kubernetes.Interface, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("find the API: %w", err)
	}
	// A rollout may end every pod of the node at once: one GET and a few Events for
	// each. Waiting in line here would let their hooks time out.
	config.QPS, config.Burst = 50, 500
	config.UserAgent = "conndrain-node/" + version
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.Wrap(node.WithAPIDates)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}
