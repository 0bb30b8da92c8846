//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// memory measures the largest resident size of whole waits.
func (b *bench) memory(ctx context.Context, n *netlab.Namespace, size int) error {
	for _, mode := range []string{"auto", "filter"} {
		b.say("memory of a wait on %s, %s", kilo(size), mode)
		peak, err := b.peakOfWait(ctx, n, mode)
		if err != nil {
			return err
		}
		const required = 16e6
		b.add(row{
			what:     fmt.Sprintf("peak RSS of a wait for %d on %s, %s", podSessions, kilo(size), mode),
			required: fmt.Sprintf("<= %.0f MB", required/1e6),
			reached:  fmt.Sprintf("%.1f MB", float64(peak)/1e6),
			verdict:  judge(peak <= required),
		})
	}
	return nil
}

// peakOfWait looks at a wait until it expires.
func (b *bench) peakOfWait(ctx context.Context, n *netlab.Namespace, mode string) (int64, error) {
	w, err := b.startWait(ctx, n, "--address", podAddr.String(), "--snapshot", mode, "--timeout", "15s")
	if err != nil {
		return 0, err
	}
	var peak int64
	for {
		// A process that is just ending has no figure any more.
		if now, err := peakRSS(w.pid); err == nil {
			peak = max(peak, now)
		}
		select {
		case <-w.done:
			if w.err != nil {
				return 0, w.err
			}
			if w.result.Cut != podSessions {
				return 0, fmt.Errorf("wait on a large table saw %d sessions at the end, the pod has %d", w.result.Cut, podSessions)
			}
			return peak, nil
		default:
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
}
