// Command conndrain shows and waits for the live sessions of an address, as
// this machine's kernel tracks them. It knows nothing of Kubernetes.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/conndrain/conndrain/cmd/conndrain/demo"
)

func main() { os.Exit(run()) }

func run() int {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup makes it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	// A second signal ends the process even if the first one's way out hangs.
	context.AfterFunc(ctx, stop)
	return execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// execute runs one command line and returns its exit code. Data goes to stdout
// and all talk to stderr. It blocks until the command is done or ctx is.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addBuiltin(root)
	addHelp(root)
	cmd, err := root.ExecuteContextC(ctx)
	return finish(cmd, err, stderr)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "conndrain",
		Short: "Live sessions of an address: see them, wait for the last one's end",
		Long: `conndrain reads the kernel's connection tracking: which sessions an address has
right now, and when the last one ends.

Exit codes: 0 done, 1 error, 2 usage, 3 deadline passed with sessions left,
130 cancelled.`,
		Example: `  conndrain wait --address 10.244.1.7 --port 8080 --timeout 5m
  conndrain sessions --address 10.244.1.7 --watch
  conndrain demo`,
		Version: buildVersion(),
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return exitError(codeUsage)
		},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(flagError)
	demonstrate := demo.Command()
	demonstrate.Args = noArgs
	root.AddCommand(newWait(), newSessions(), demonstrate, newVersion())
	return root
}
