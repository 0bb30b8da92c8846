package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/conndrain/conndrain/conntrack"
)

// How often `sessions --watch` looks: not more often than coalesceFor after a
// change, and at least once every lookUpEvery, because states change by time too.
const (
	coalesceFor = 50 * time.Millisecond
	lookUpEvery = time.Second
)

// view shows a set of sessions each time it may have changed. fault is why the
// counts are unknown, if the kernel could not be asked.
type view interface {
	show(sessions []conntrack.Session, counts conntrack.Counts, fault error) error
}

func followSessions(cmd *cobra.Command, f *sessionsFlags) error {
	reader := conntrack.NewReader(conntrack.Config{Snapshot: f.snapshot})
	seen := &observer{}
	if f.seesSockets() {
		ctx, stop := context.WithCancel(cmd.Context())
		var running sync.WaitGroup
		running.Go(func() { seen.observe(ctx, f.socketLooker()) })
		defer func() {
			stop()
			briefly(running.Wait)
		}()
	}
	return follow(cmd.Context(), opener(reader, f.target), f.view(cmd, seen))
}

func (f *sessionsFlags) view(cmd *cobra.Command, seen *observer) view {
	out := cmd.OutOrStdout()
	if f.output == formatJSON {
		return &changeView{w: out, doing: seen.now, write: writeChangeJSON}
	}
	if screen := terminalOf(out); screen != nil {
		return &screenView{w: out, screen: screen, subject: f.subject(), doing: seen.now}
	}
	return &changeView{w: out, doing: seen.now, write: writeChangeText}
}

// follow shows the sessions until the context ends, which it calls cancelled.
func follow(ctx context.Context, open watchOpener, v view) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	opening := openWatch(work, open)
	var w watch
	defer func() {
		stop()
		briefly(func() { closeWatch(w, opening) })
	}()
	var changes <-chan struct{}
	tick := time.NewTimer(lookUpEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return exitError(codeCancelled)
		case o := <-opening:
			w, opening = o.watch, nil
			if o.err != nil {
				return o.err
			}
			changes = w.Changes()
			tick.Reset(0)
		case <-changes:
			changes = nil // until the tick: many changes make one picture
			tick.Reset(coalesceFor)
		case <-tick.C:
			tick.Reset(lookUpEvery)
			if w == nil {
				continue
			}
			changes = w.Changes()
			if err := v.show(w.Sessions(), w.Counts(), w.Err()); err != nil {
				return fmt.Errorf("write sessions: %w", err)
			}
		}
	}
}
