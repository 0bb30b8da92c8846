package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// plugin is one run of the command.
type plugin struct {
	streams genericiooptions.IOStreams
	// interactive says that a person can be asked, screen that a table can be
	// written over.
	interactive, screen bool
	// connect finds the cluster; it does no I/O but to read the kubeconfig.
	connect func() (*cluster, error)

	kube             *genericclioptions.ConfigFlags
	helperNamespace  string
	helperSelector   string
	allNamespaces    bool
	namespaceChanged bool // -n was given
}

// execute runs one command line and returns its exit code. It blocks until the
// command is done or ctx is.
func (p *plugin) execute(ctx context.Context, args []string) int {
	root := p.root()
	root.SetArgs(args)
	root.SetIn(p.streams.In)
	root.SetOut(p.streams.Out)
	root.SetErr(p.streams.ErrOut)
	cmd, err := root.ExecuteContextC(ctx)
	return finish(ctx, cmd, err, p.streams.ErrOut)
}

func (p *plugin) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-conndrain",
		Short: "See why pods are still terminating, and let them go",
		Long: `kubectl conndrain shows which pods conndrain holds and by which sessions, and lets
them go before their time.

It asks the helper on each node, by running a command in the helper's container:
that takes the right to list pods and to create and get pods/exec in the helper's namespace,
and for pod/NAME the right to get pods in that pod's namespace.

Exit codes: 0 done, 1 error (also a helper that could not be asked), 2 usage,
130 cancelled.`,
		Example: `  kubectl conndrain status -A
  kubectl conndrain status pod/web-7d9f --watch
  kubectl conndrain release pod/web-7d9f --reason "client is stuck"`,
		Version:       buildVersion(),
		Args:          noArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl conndrain"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return exitError(codeUsage)
		},
		PersistentPreRun: func(cmd *cobra.Command, _ []string) {
			p.namespaceChanged = cmd.Flags().Changed("namespace")
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	p.kube = genericclioptions.NewConfigFlags(true)
	p.kube.CacheDir, p.kube.DisableCompression = nil, nil // nothing is cached here
	flags := root.PersistentFlags()
	p.kube.AddFlags(flags)
	flags.StringVar(&p.helperNamespace, "helper-namespace", "conndrain-system", "where the helpers run")
	flags.StringVar(&p.helperSelector, "helper-selector", "app.kubernetes.io/name=conndrain-node", "the labels of the helpers' pods")
	for name, complete := range map[string]cobra.CompletionFunc{
		"namespace": p.completeNamespaces, "context": p.completeContexts, "helper-namespace": p.completeNamespaces,
	} {
		if err := root.RegisterFlagCompletionFunc(name, complete); err != nil {
			panic(fmt.Sprintf("complete --%s: %v", name, err)) // the flag stands above
		}
	}
	root.AddCommand(p.newStatus(), p.newRelease(), newVersion())
	return root
}

// addAllNamespaces adds -A to a command.
func (p *plugin) addAllNamespaces(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&p.allNamespaces, "all-namespaces", "A", false, "pods of all namespaces")
}

// namespace is the one that was asked for, or empty for all of them. Whoever asks
// about a node or about all of them means all its pods, unless told otherwise.
func (p *plugin) namespace(c *cluster, all bool) (string, error) {
	switch {
	case p.allNamespaces && p.namespaceChanged:
		return "", usagef("--namespace and --all-namespaces say different things: give one")
	case p.allNamespaces, all && !p.namespaceChanged:
		return "", nil
	}
	return c.namespace, nil
}
