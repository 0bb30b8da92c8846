//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// million measures the table of a large node. It raises nf_conntrack_max for as
// long as it runs.
func million(ctx context.Context, b *bench) (err error) {
	const (
		size = 1_000_000
		// A node of that size has at least these; Linux 6.18 takes them by itself
		// from 16 GiB on.
		buckets = 262_144
	)
	restore, err := netlab.RaiseTable(size+size/10, buckets)
	if err != nil {
		return fmt.Errorf("%w (--quick leaves out the table of %s)", err, kilo(size))
	}
	defer func() { err = errors.Join(err, restore()) }()
	b.say("filling a table of %s", kilo(size))
	n, err := newTable(size)
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()

	filter, stream, grep, dump := b.bySessions("filter"), b.bySessions("auto"), byConntrack(), byDump()
	if err := b.race(ctx, n, filter, stream, grep, dump); err != nil {
		return err
	}
	what := func(mode string) string {
		return fmt.Sprintf("snapshot of %d in %s, %s", podSessions, kilo(size), mode)
	}
	b.add(
		ratio(what("filter"), filter.times, grep.name, grep.times, 14),
		ratio(what("filter"), filter.times, dump.name, dump.times, 18),
		ratio(what("auto"), stream.times, grep.name, grep.times, 2),
		ratio(what("auto"), stream.times, dump.name, dump.times, 2.5),
	)
	if err := b.holds(ctx, n, size); err != nil {
		return err
	}
	if err := b.recheck(ctx, n, size, grep, 100); err != nil {
		return err
	}
	return b.memory(ctx, n, size)
}
