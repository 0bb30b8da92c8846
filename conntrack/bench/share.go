//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// cpuShares measures what it costs to wait for sessions that are older than the
// wait, which have to be asked for again and again.
func cpuShares(ctx context.Context, b *bench) error {
	s, err := newSite(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for _, open := range []int{1, 200, podSessions} {
		b.say("cost of waiting for %d sessions", open)
		var took sample
		var shares []float64
		for range b.rounds {
			share, d, err := b.cpuShare(ctx, s, open)
			if err != nil {
				return fmt.Errorf("%d sessions: %w", open, err)
			}
			took, shares = append(took, d), append(shares, share)
		}
		const required = 0.10
		median := slices.Sorted(slices.Values(shares))[len(shares)/2]
		b.add(row{
			what:     fmt.Sprintf("CPU of a wait for %d older", open),
			ours:     "last end to return " + took.String(),
			required: fmt.Sprintf("<= %.0f %% of a core", 100*required),
			reached:  fmt.Sprintf("%.1f %%, worst %.1f %%", 100*median, 100*slices.Max(shares)),
			verdict:  judge(median <= required),
		})
	}
	return nil
}

// cpuShare returns the part of a core that a wait takes while nothing happens,
// and how long it goes on after the end.
func (b *bench) cpuShare(ctx context.Context, s *site, open int) (float64, time.Duration, error) {
	sessions, err := s.openUnheard(ctx, open)
	if err != nil {
		return 0, 0, err
	}
	defer sessions.abandon()
	w, err := b.startWait(ctx, s.Node, "--address", s.PodAddr.String())
	if err != nil {
		return 0, 0, err
	}
	// What the start costs is over by then.
	if err := pause(ctx, time.Second); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	before, err := cpuTime(w.pid)
	if err != nil {
		return 0, 0, err
	}
	if err := pause(ctx, 3*time.Second); err != nil {
		return 0, 0, err
	}
	after, err := cpuTime(w.pid)
	if err != nil {
		return 0, 0, err
	}
	share := float64(after-before) / float64(time.Since(began))
	if err := w.running(); err != nil {
		return 0, 0, err
	}
	ended, err := sessions.end()
	if err != nil {
		return 0, 0, err
	}
	if err := w.drained(); err != nil {
		return 0, 0, err
	}
	return share, w.ended.Sub(ended), nil
}
