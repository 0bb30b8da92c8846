// Command prestop is a pod's preStop hook. It returns when the last session of the
// pod has ended, or when the time that Kubernetes gave the pod is nearly used up.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/conndrain/conndrain/lifecycle/hook"
)

// version is set at link time (-X main.version=v0.1.0).
var version = "(devel)"

func main() { os.Exit(run()) }

// gcPercent keeps the memory of a process small that runs beside every container. What
// a look leaves behind is as little work to collect.
const gcPercent = 25

func run() int {
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process even if the first one's way out hangs.
	context.AfterFunc(ctx, stop)
	return execute(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
}

// What the process says by its exit code. As a hook in a container it is always 0: a
// hook that fails hides what it did in an Event, and does not hold the pod.
const (
	codeDone  = 0
	codeError = 1
	codeUsage = 2
)

// execute waits, serves or copies as the arguments and the environment say and
// returns the exit code.
func execute(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "copy" {
		err := copyTo(args[1:])
		switch {
		case err == nil:
			return codeDone
		case errors.Is(err, errHelp):
			return written(io.WriteString(stdout, usage))
		}
		fmt.Fprintf(stderr, "prestop: %v\n", err)
		if errors.Is(err, errFolder) {
			return codeUsage
		}
		return codeError
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	c, err := parse(args, getenv)
	switch {
	case errors.Is(err, errHelp):
		return written(io.WriteString(stdout, usage))
	case errors.Is(err, errVersion):
		return written(fmt.Fprintln(stdout, "prestop", version))
	case err != nil && getenv("KUBERNETES_SERVICE_HOST") == "":
		fmt.Fprintf(stderr, "prestop: %v\n'prestop --help' says how it is used.\n", err)
		return codeUsage
	case err != nil:
		log.Error("goes on with what could be read", "err", err)
	}
	c.Version, c.Logger = version, log
	if !c.sidecar {
		hook.Wait(ctx, c.Config)
		return codeDone
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.listen)
	if err == nil {
		err = hook.Serve(ctx, c.Config, l)
	}
	if err != nil {
		fmt.Fprintf(stderr, "prestop: %v\n", err)
		return codeError
	}
	return codeDone
}

func written(_ int, err error) int {
	if err != nil {
		return codeError
	}
	return codeDone
}
