// Command kubectl-conndrain is the plugin `kubectl conndrain`: it shows people what
// drains in a cluster and why a pod is still there, and lets them end it.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
)

// completer is the name that kubectl looks for when the words of a plugin are to
// be completed: a link to this program.
const completer = "kubectl_complete-conndrain"

func main() { os.Exit(run()) }

func run() int {
	klog.SetLogger(logr.Discard()) // what matters comes back as an error
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process even if the first one's way out hangs.
	context.AfterFunc(ctx, stop)
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == completer {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	p := &plugin{
		streams:     streams,
		interactive: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())),
		screen:      term.IsTerminal(int(os.Stdout.Fd())),
	}
	p.connect = p.connectByKubeconfig
	return p.execute(ctx, args)
}
