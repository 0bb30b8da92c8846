package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	only   string
	hooks  string
	quick  bool
	output string
	check  bool

	ends, burst, sessions int
	runs, others          int
	settle                time.Duration
}

// quick makes small what is a matter of numbers.
func (o *options) defaults() {
	for _, n := range []struct {
		into        *int
		full, quick int
	}{
		{&o.ends, 100, 5}, {&o.burst, 100, 5}, {&o.sessions, 50, 5}, {&o.runs, 5, 1}, {&o.others, 2, 1},
	} {
		switch {
		case *n.into > 0:
		case o.quick:
			*n.into = n.quick
		default:
			*n.into = n.full
		}
	}
}

// validate returns every mistake at once.
func (o *options) validate() error {
	var errs []error
	if o.output != "markdown" && o.output != "json" {
		errs = append(errs, fmt.Errorf("output %q: use markdown or json", o.output))
	}
	if o.ends < 1 || o.burst < 1 || o.ends > maxPods || o.burst > maxPods {
		errs = append(errs, fmt.Errorf("ends %d, burst %d: a node has room for %d pods", o.ends, o.burst, maxPods))
	}
	if o.sessions < 1 || o.runs < 1 || o.others < 1 || o.settle <= 0 {
		errs = append(errs, errors.New("sessions, runs, others and settle have to be more than nothing"))
	}
	for _, name := range o.chosen() {
		if !slices.Contains(groupNames(), name) {
			errs = append(errs, fmt.Errorf("no group %q: use %s", name, strings.Join(groupNames(), ", ")))
		}
	}
	for _, name := range o.chosenHooks() {
		if !slices.Contains(hookNames(), name) {
			errs = append(errs, fmt.Errorf("no hook %q: use %s", name, strings.Join(hookNames(), ", ")))
		}
	}
	return errors.Join(errs...)
}

func (o *options) chosenHooks() []string {
	if o.hooks == "" {
		return hookNames()
	}
	return strings.Split(o.hooks, ",")
}

func (o *options) chosen() []string {
	if o.only == "" {
		return groupNames()
	}
	return strings.Split(o.only, ",")
}

// group is a part of the bench that can be run by itself.
type group struct {
	name string
	run  func(context.Context, *bench) error
}

// groups in the order of the printed table.
var groups = []group{
	{"hook", hook},
	{"memory", memory},
	{"ends", ends},
	{"burst", burst},
	{"rollout", rollouts},
	{"requests", untilRequests},
	{"matrix", matrix},
}

func groupNames() []string {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

func main() { os.Exit(run()) }

func run() int {
	var o options
	flag.StringVar(&o.only, "only", "", "comma separated groups to run: "+strings.Join(groupNames(), ", "))
	flag.StringVar(&o.hooks, "hooks", "", "comma separated hooks of the rolling restarts: "+strings.Join(hookNames(), ", "))
	flag.BoolVar(&o.quick, "quick", false, "small numbers, to see that it works: no figures to quote")
	flag.StringVar(&o.output, "output", "markdown", "markdown or json")
	flag.BoolVar(&o.check, "check", false, "exit with 1 if something was not met")
	flag.IntVar(&o.ends, "ends", 0, "drains one at a time (default 100)")
	flag.IntVar(&o.burst, "burst", 0, "pods that drain at once (default 100)")
	flag.IntVar(&o.sessions, "sessions", 0, "sessions of each of them (default 50)")
	flag.IntVar(&o.runs, "runs", 0, "rolling restarts with the product's hook (default 5)")
	flag.IntVar(&o.others, "other-runs", 0, "rolling restarts with each other hook (default 2)")
	flag.DurationVar(&o.settle, "settle", time.Second, "conndrain.io/settle of the pods that drain one at a time")
	flag.Parse()
	o.defaults()
	if err := o.validate(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process even if the first one's way out hangs; the next run cleans up.
	context.AfterFunc(ctx, stop)
	r, err := measure(ctx, o)
	if err := r.write(os.Stdout, o.output); err != nil {
		fmt.Fprintln(os.Stderr, "bench: write the report:", err)
		return 1
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	if i := slices.IndexFunc(r.Rows, func(r row) bool { return r.Met != nil && !*r.Met }); i >= 0 && o.check {
		fmt.Fprintln(os.Stderr, "bench: something was not met, the first:", r.Rows[i].What)
		return 1
	}
	return 0
}

// bench is one run.
type bench struct {
	options
	site   *site
	report report
	begun  time.Time
}

// say tells a person what takes so long.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench %7.1fs  %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (b *bench) add(rows ...row) {
	for _, r := range rows {
		b.say("%s: %s %s", r.What, r.Measured, r.verdict())
		b.report.Rows = append(b.report.Rows, r)
	}
}

// measure runs the groups and returns what they found, also on an error. One that fails does not keep the others from it:
// a run takes long.
func measure(ctx context.Context, o options) (found report, err error) {
	b := &bench{options: o, begun: time.Now()}
	b.report.Facts = facts()
	b.report.Quick = o.quick
	if b.site, err = open(ctx); err != nil {
		return b.report, err
	}
	defer func() { err = errors.Join(err, b.site.close(err != nil && ctx.Err() == nil)) }()
	for _, g := range groups {
		if !slices.Contains(o.chosen(), g.name) {
			continue
		}
		b.say("%s", g.name)
		failed := g.run(ctx, b)
		if ctx.Err() != nil {
			return b.report, fmt.Errorf("%s: interrupted", g.name)
		}
		if failed != nil {
			b.say("%s: %v", g.name, failed)
			err = errors.Join(err, fmt.Errorf("%s: %w", g.name, failed))
		}
	}
	return b.report, err
}
