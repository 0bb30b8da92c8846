//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// contender is one way to list the pod's sessions, as a whole process.
type contender struct {
	name string
	env  []string
	args []string
	// head is how many lines come before the sessions.
	head  int
	times sample
}

// byConntrack is what people do today.
func byConntrack() *contender {
	return &contender{
		name: "conntrack -L -p tcp | grep",
		args: []string{"sh", "-c", fmt.Sprintf("conntrack -L -p tcp 2>/dev/null | grep -F 'src=%s '", podAddr)},
	}
}

// byDump is the obvious program on the library that we use, too.
func byDump() *contender {
	return &contender{name: "ti-mo Dump", env: []string{childEnv + "=" + childDump}, args: []string{"/proc/self/exe", podAddr.String()}}
}

func (b *bench) bySessions(mode string) *contender {
	return &contender{
		name: "conndrain sessions --snapshot " + mode,
		args: []string{b.conndrain, "sessions", "--address", podAddr.String(), "--snapshot", mode},
		head: 1,
	}
}

// race runs all contenders in turn, so that whatever else the machine does
// meets each of them, and checks that each of them finds all sessions.
func (b *bench) race(ctx context.Context, n *netlab.Namespace, contenders ...*contender) error {
	for i := range b.rounds {
		for _, c := range contenders {
			f, err := runIn(ctx, n, c.env, c.args...)
			if err != nil {
				return err
			}
			if lines := bytes.Count(f.stdout, []byte{'\n'}) - c.head; lines != podSessions {
				return fmt.Errorf("%s: %d sessions, the pod has %d", c.name, lines, podSessions)
			}
			c.times = append(c.times, f.took)
			b.say("round %d: %s %s", i+1, c.name, span(f.took))
		}
	}
	return nil
}

// snapshotSmall measures a table that needs nothing of the machine.
func snapshotSmall(ctx context.Context, b *bench) error {
	const size = 100_000
	b.say("filling a table of %s", kilo(size))
	n, err := newTable(size)
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()
	ours, grep, dump := b.bySessions("auto"), byConntrack(), byDump()
	if err := b.race(ctx, n, ours, grep, dump); err != nil {
		return err
	}
	what := fmt.Sprintf("snapshot of %d in %s", podSessions, kilo(size))
	b.add(
		ratio(what, ours.times, grep.name, grep.times, 9),
		ratio(what, ours.times, dump.name, dump.times, 13),
	)
	return b.recheck(ctx, n, size, grep, 20)
}
