//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
)

// firstPort is that of a batch's first trial.
const firstPort = 10000

// batch are trials that run at the same time, and are looked at together.
type batch struct {
	options
	ground *ground
	dir    string
	trials []*running
}

// run runs the trials for as long as they last.
func (b batch) run(ctx context.Context) (err error) {
	stop, err := b.start(ctx)
	if err != nil {
		return errors.Join(err, stop())
	}
	defer func() { err = errors.Join(err, stop()) }()
	ctx, over := context.WithTimeout(ctx, b.lasts)
	defer over()
	g, ctx := errgroup.WithContext(ctx)
	for _, r := range b.trials {
		_, secure, err := productOf(r.server)
		if err != nil {
			return err
		}
		g.Go(func() error { return r.traffic(ctx, b.ground.clients, b.ground.server(r.link), secure, b.options) })
	}
	g.Go(func() error { return b.look(ctx) })
	return g.Wait()
}

// start starts the servers, each once for all of its trials. stop is never nil.
func (b batch) start(ctx context.Context) (stop func() error, err error) {
	var stops []func() error
	stop = func() (err error) {
		for _, s := range stops {
			err = errors.Join(err, s())
		}
		return err
	}
	spots := make(map[string][]spot)
	for _, r := range b.trials {
		spots[r.server] = append(spots[r.server], spot{Port: r.port, H2: r.kind.h2, GRPC: r.kind.grpc})
	}
	for name, all := range spots {
		p, secure, err := productOf(name)
		if err != nil {
			return stop, err
		}
		dir, err := os.MkdirTemp(b.dir, name)
		if err != nil {
			return stop, err
		}
		end, err := p.start(ctx, host{
			namespace: b.ground.servers, dir: dir, note: b.note, spots: all, secure: secure,
			certificate: filepath.Join(b.dir, certificateFile), key: filepath.Join(b.dir, keyFile),
		})
		if err != nil {
			return stop, fmt.Errorf("%s: %w", name, err)
		}
		stops = append(stops, end)
	}
	return stop, nil
}

// note gives what a server says to the trial that it is about.
func (b batch) note(id uint64, what moment, at time.Time) {
	if of := id / requestsOf; of < uint64(len(b.trials)) {
		b.trials[of].truth.note(id, what, at)
	}
}

// look looks at all servers' connections until ctx ends.
func (b batch) look(ctx context.Context) error {
	ports := make(map[uint16]*running, len(b.trials))
	for _, r := range b.trials {
		ports[r.port] = r
	}
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	return b.ground.servers.Do(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			l, err := sockdiag.TakeTraffic(context.WithoutCancel(ctx))
			if err != nil {
				return fmt.Errorf("look: %w", err)
			}
			read := time.Now()
			all := figuresOf(l, ports)
			for _, r := range b.trials {
				r.look(l.At, read, all[r])
			}
		}
	})
}
