//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

// churn waits for sessions that come and go while others of the same node cause
// a flood of events.
func churn(ctx context.Context, b *bench) error {
	const (
		rate  = 100_000
		steps = 50
		every = 100 * time.Millisecond
	)
	s, err := newSite(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	b.say("%d events a second for %s", rate, steps*every)
	older, err := s.openUnheard(ctx, steps)
	if err != nil {
		return err
	}
	defer older.abandon()
	w, err := b.startWait(ctx, s.Node, "--address", s.PodAddr.String())
	if err != nil {
		return err
	}

	flood, stop := context.WithCancel(ctx)
	defer stop()
	var g errgroup.Group
	var caused int
	began := time.Now()
	g.Go(func() (err error) {
		caused, err = flow(flood, s.Node, rate)
		return err
	})
	// One older session ends and a younger one begins at each step; the younger
	// ones stay for half of the time.
	var younger crowd
	defer func() { younger.abandon() }()
	for i := range steps {
		if err := pause(ctx, time.Until(began.Add(time.Duration(i+1)*every))); err != nil {
			return err
		}
		c, err := s.open(ctx, 1)
		if err != nil {
			return err
		}
		younger = append(younger, c...)
		if _, err := older[i : i+1].end(); err != nil {
			return err
		}
		if i >= steps/2 {
			if _, err := younger[i-steps/2 : i-steps/2+1].end(); err != nil {
				return err
			}
		}
		if err := w.running(); err != nil {
			return err
		}
	}
	ended, err := younger[steps/2:].end()
	if err != nil {
		return err
	}
	err = w.drained()
	lasted := time.Since(began)
	stop()
	if err := errors.Join(err, g.Wait()); err != nil {
		return err
	}
	reached := float64(caused) / lasted.Seconds()
	right := w.result.New == steps && w.result.Peak >= steps
	b.add(row{
		what:     fmt.Sprintf("%d sessions in %dk events/s, %s", 2*steps, rate/1000, steps*every),
		ours:     "last end to return " + span(w.ended.Sub(ended)),
		required: fmt.Sprintf("%d new, %d or more at once", steps, steps),
		reached:  fmt.Sprintf("%d new, %d at once, at %.0fk/s", w.result.New, w.result.Peak, reached/1000),
		verdict:  judge(right && reached >= 0.95*rate),
	})
	return nil
}
