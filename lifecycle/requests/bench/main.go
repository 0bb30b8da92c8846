//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// options are the flags.
type options struct {
	servers string
	kinds   string
	clients int
	lasts   time.Duration
	every   time.Duration
	seed    uint64
}

func main() { os.Exit(run()) }

func run() int {
	var o options
	flag.StringVar(&o.servers, "servers", "go,go-tls", "comma separated: "+strings.Join(serverNames(), ", "))
	flag.StringVar(&o.kinds, "kinds", "", "comma separated kinds of traffic (default all): "+strings.Join(kindNames(), ", "))
	flag.IntVar(&o.clients, "clients", 10, "connections of each kind at a time")
	flag.DurationVar(&o.lasts, "lasts", 20*time.Second, "how long each kind runs on each server")
	flag.DurationVar(&o.every, "every", 22*time.Millisecond, "time between two looks")
	flag.Uint64Var(&o.seed, "seed", 1, "of what the clients do")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// measure runs each kind of traffic on each server, prints the matrix, and is an
// error if a request in flight was ever judged between under the strict rule where
// that is promised.
func measure(ctx context.Context, o options) error {
	ns, err := netlab.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	kinds, err := chooseKinds(o.kinds)
	if err != nil {
		return err
	}
	var rows []row
	for name := range strings.SplitSeq(o.servers, ",") {
		for _, k := range kinds {
			if !k.on(name) {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s, %s\n", name, k.name)
			r, err := trial{options: o, namespace: ns, server: name, kind: k}.run(ctx)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", name, k.name, err)
			}
			rows = append(rows, r)
		}
	}
	return printMatrix(os.Stdout, rows)
}
