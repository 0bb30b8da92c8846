//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// lastEnds measures from the last session's end to the end of the process that
// waits for it.
func lastEnds(ctx context.Context, b *bench) error {
	s, err := newSite(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	// The moment of the end must not follow the rhythm of the re-checks.
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		age   string
		young bool
		open  int
	}{
		{"older", false, 1},
		{"older", false, 100},
		{"younger", true, 1},
		{"younger", true, 100},
	} {
		b.say("%d times: %d sessions %s than the wait", b.runs, c.open, c.age)
		var took sample
		for range b.runs {
			d, err := b.lastEnd(ctx, s, c.young, c.open, time.Duration(random.Int64N(int64(150*time.Millisecond))))
			if err != nil {
				return fmt.Errorf("%d sessions %s than the wait: %w", c.open, c.age, err)
			}
			took = append(took, d)
		}
		const required = 50 * time.Millisecond
		b.add(row{
			what:     fmt.Sprintf("last end to return, %d %s", c.open, c.age),
			ours:     took.String(),
			required: "p99 <= " + span(required),
			reached:  fmt.Sprintf("p50 %s, p99 %s, worst %s of %d", span(took.median()), span(took.percentile(99)), span(took.worst()), len(took)),
			verdict:  judge(took.percentile(99) <= required),
		})
	}
	return nil
}

// lastEnd ends open sessions at once, after a moment, and returns how long the
// wait for them went on.
func (b *bench) lastEnd(ctx context.Context, s *site, young bool, open int, after time.Duration) (time.Duration, error) {
	older := open
	if young {
		older = 1 // holds the wait until the younger ones are there
	}
	sessions, err := s.openUnheard(ctx, older)
	if err != nil {
		return 0, err
	}
	defer func() { sessions.abandon() }()
	w, err := b.startWait(ctx, s.Node, "--address", s.PodAddr.String())
	if err != nil {
		return 0, err
	}
	if young {
		holder := sessions
		if sessions, err = s.open(ctx, open); err != nil {
			return 0, err
		}
		if _, err := holder.end(); err != nil {
			return 0, err
		}
	}
	if err := pause(ctx, after); err != nil {
		return 0, err
	}
	if err := w.running(); err != nil {
		return 0, err
	}
	ended, err := sessions.end()
	if err != nil {
		return 0, err
	}
	if err := w.drained(); err != nil {
		return 0, err
	}
	if young && w.result.New != open || w.result.Peak < open {
		return 0, fmt.Errorf("wait saw %d new sessions and %d at most, %d were there", w.result.New, w.result.Peak, open)
	}
	return w.ended.Sub(ended), nil
}
