//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/netlab"
)

// recheck measures how long it takes to ask again for all known sessions of the
// pod, against a whole listing, which would be the other way to know.
func (b *bench) recheck(ctx context.Context, n *netlab.Namespace, size int, against *contender, required float64) error {
	r := conntrack.NewReader(conntrack.Config{NetNS: n.FD()})
	w, err := r.Watch(ctx, conntrack.Target{Addresses: []netip.Addr{podAddr}})
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	var took sample
	for seen, want := 0, max(b.rounds, 10); len(took) < want; {
		if err := pause(ctx, time.Millisecond); err != nil {
			return err
		}
		s := r.Stats()
		if s.Sweeps == seen || s.LastSweepFlows != podSessions {
			continue
		}
		seen = s.Sweeps
		took = append(took, s.LastSweep)
	}
	if c := w.Counts(); !c.Known || c.Open != podSessions {
		return fmt.Errorf("re-check: open %d, known %t, the pod has %d", c.Open, c.Known, podSessions)
	}
	b.add(ratio(fmt.Sprintf("re-check of %d in %s", podSessions, kilo(size)), took, against.name, against.times, required))
	return nil
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
