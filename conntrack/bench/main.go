//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// options are the flags.
type options struct {
	conndrain string
	quick     bool
	rounds    int
	runs      int
	only      string
}

func main() {
	netlab.GuardTable()
	if name := os.Getenv(childEnv); name != "" {
		os.Exit(child(name))
	}
	os.Exit(run())
}

func run() int {
	var o options
	flag.StringVar(&o.conndrain, "conndrain", "bin/conndrain", "the program to measure")
	flag.BoolVar(&o.quick, "quick", false, "leave out the table of a million entries")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each process is measured")
	flag.IntVar(&o.runs, "runs", 200, "how many ends of a last session are measured")
	flag.StringVar(&o.only, "only", "", "comma separated groups to run: "+strings.Join(groupNames(), ", "))
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	rows, err := measure(ctx, o)
	fmt.Print(facts())
	printRows(os.Stdout, rows)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	if i := slices.IndexFunc(rows, func(r row) bool { return r.verdict == missed }); i >= 0 {
		fmt.Fprintln(os.Stderr, "bench: something was missed, the first:", rows[i].what)
		return 1
	}
	return 0
}

// group is a part of the bench that can be run by itself.
type group struct {
	name string
	// large means that it needs a table of a million entries.
	large bool
	run   func(context.Context, *bench) error
}

// groups in the order of the printed table. A large one comes last, so that a
// machine on which the table cannot be raised tells all else first.
var groups = []group{
	{"snapshot", false, snapshotSmall},
	{"end", false, lastEnds},
	{"share", false, cpuShares},
	{"churn", false, churn},
	{"million", true, million},
}

func groupNames() []string {
	var names []string
	for _, g := range groups {
		names = append(names, g.name)
	}
	return names
}

// bench is one run.
type bench struct {
	options
	rows []row
}

// say tells a person what takes so long.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

func (b *bench) add(r ...row) {
	for _, r := range r {
		b.say("%s: %s %s", r.what, r.reached, r.verdict)
		b.rows = append(b.rows, r)
	}
}

// measure runs the groups and returns what they found so far, also on an error.
func measure(ctx context.Context, o options) ([]row, error) {
	b := &bench{options: o}
	path, err := filepath.Abs(o.conndrain)
	if err != nil {
		return nil, err
	}
	b.conndrain = path
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: build it with make build", err)
	}
	var chosen []string
	if o.only != "" {
		chosen = strings.Split(o.only, ",")
	}
	for _, name := range chosen {
		if !slices.Contains(groupNames(), name) {
			return nil, fmt.Errorf("no group %q: use %s", name, strings.Join(groupNames(), ", "))
		}
	}
	for _, g := range groups {
		if len(chosen) > 0 && !slices.Contains(chosen, g.name) || g.large && o.quick {
			continue
		}
		if err := g.run(ctx, b); err != nil {
			if ctx.Err() != nil {
				err = errors.New("interrupted")
			}
			return b.rows, fmt.Errorf("%s: %w", g.name, err)
		}
	}
	return b.rows, nil
}
