//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// options are the flags.
type options struct {
	servers, kinds, links  string
	clients, trials, looks int
	lasts, every           time.Duration
	seed                   uint64
	output                 string
	check, costs           bool
	record, replay         string
}

func main() { os.Exit(run()) }

func run() int {
	if os.Getenv(dialEnv) != "" {
		if err := dial(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
		return 0
	}
	var o options
	flag.StringVar(&o.servers, "servers", strings.Join(serverNames(), ","), "comma separated servers")
	flag.StringVar(&o.kinds, "kinds", "", "comma separated words, of which the kinds of traffic have one in their names (default all)")
	flag.StringVar(&o.links, "links", strings.Join(linkNames, ","), "comma separated links; each round takes one for each kind on each server")
	flag.IntVar(&o.clients, "clients", 6, "connections of each trial at a time")
	flag.IntVar(&o.trials, "trials", 74, "trials at a time; a trial is one kind on one server over one link")
	flag.DurationVar(&o.lasts, "lasts", 75*time.Second, "how long each trial lasts")
	flag.DurationVar(&o.every, "every", 22*time.Millisecond, "time between two looks")
	flag.IntVar(&o.looks, "looks", 0, "go on until so many looks at a request in flight were judged, for one round at the least")
	flag.Uint64Var(&o.seed, "seed", 1, "of what the clients do, and of which trials run together")
	flag.StringVar(&o.output, "output", "text", "text or json")
	flag.BoolVar(&o.check, "check", false, "exit 1 when something that has to be reached is not")
	flag.BoolVar(&o.costs, "costs", true, "measure what a look costs")
	flag.StringVar(&o.record, "record", "", "write all looks into this directory: 100 bytes for each")
	flag.StringVar(&o.replay, "replay", "", "judge the looks of this directory, and measure nothing")
	flag.Parse()
	if o.output != "text" && o.output != "json" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "bench: --output is text or json, and there are no arguments without a flag")
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r, err := measure(ctx, o)
	if err == nil {
		err = r.write(os.Stdout, o.output)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	if o.check && r.missed() {
		fmt.Fprintln(os.Stderr, "bench: something that has to be reached is not")
		return 1
	}
	return 0
}

// measure does what the flags say.
func measure(ctx context.Context, o options) (r report, err error) {
	started := time.Now()
	r = report{Machine: machine(), Seed: o.seed}
	if r.kinds, err = chooseKinds(o.kinds); err != nil {
		return r, err
	}
	if o.replay != "" {
		r.Cells, err = replay(o.replay, r.kinds)
	} else {
		if o.costs {
			if r.Costs, err = measureCosts(ctx); err != nil {
				return r, fmt.Errorf("measure what a look costs: %w", err)
			}
		}
		r.Cells, err = measureTraffic(ctx, o, r.kinds)
	}
	if err != nil {
		return r, err
	}
	r.Seconds = time.Since(started).Seconds()
	r.Looks = flyingOf(r.Cells)
	r.judgeGoals(o.looks)
	return r, ctx.Err()
}

// measureTraffic runs the trials of as many rounds as it takes.
func measureTraffic(ctx context.Context, o options, kinds []kind) (cells []cell, err error) {
	links, err := linksOf(o.links)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "conndrain-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := certify(dir); err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	g, err := newGround(ctx, links, o.seed)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.end()) }()
	number := 0
	for round := uint64(0); round == 0 || flyingOf(cells) < o.looks; round++ {
		all, err := trialsOf(o, kinds, links, round)
		if err != nil {
			return nil, err
		}
		for begin := 0; begin < len(all) && ctx.Err() == nil; begin += o.trials {
			// The first round sees everything; later ones only fill up.
			if round > 0 && flyingOf(cells) >= o.looks {
				break
			}
			some := all[begin:min(begin+o.trials, len(all))]
			fmt.Fprintf(os.Stderr, "round %d: %d of %d trials, %d looks at a request in flight\n", round+1, begin, len(all), flyingOf(cells))
			of, err := runBatch(ctx, o, g, dir, some, number)
			if err != nil {
				return nil, err
			}
			cells = append(cells, of...)
			number++
		}
		if ctx.Err() != nil {
			return cells, ctx.Err()
		}
	}
	return cells, nil
}

// runBatch runs some trials at the same time.
func runBatch(ctx context.Context, o options, g *ground, dir string, some []trial, number int) (cells []cell, err error) {
	record, err := newRecorder(o.record, number)
	if err != nil {
		return nil, err
	}
	b := batch{options: o, ground: g, dir: dir}
	for i, t := range some {
		t.number, t.port = uint64(i), firstPort+uint16(i)
		b.trials = append(b.trials, newRunning(t, record))
	}
	if err := errors.Join(b.run(ctx), record.end(b.trials)); err != nil {
		return nil, err
	}
	for _, r := range b.trials {
		cells = append(cells, r.tabulate())
	}
	return cells, nil
}

// flyingOf counts the looks at requests in flight that can be seen into.
func flyingOf(cells []cell) (n int) {
	for _, c := range cells {
		if !c.Opaque {
			n += c.Flying
		}
	}
	return n
}

// machine names what it was measured on.
func machine() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return runtime.GOARCH
	}
	return fmt.Sprintf("Linux %s %s, %d CPUs", unix.ByteSliceToString(u.Release[:]), runtime.GOARCH, runtime.NumCPU())
}
