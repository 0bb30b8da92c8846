//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle/requests"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// margin is how near to a change a look says nothing about the classifier.
const margin = 20 * time.Millisecond

// trial is one kind of traffic on one server.
type trial struct {
	options
	namespace *netlab.Namespace
	server    string
	kind      kind
}

// judged is one connection at one look.
type judged struct {
	from, to     time.Time
	client       netip.AddrPort
	strict, wide requests.Class
}

func (t trial) run(ctx context.Context) (row, error) {
	known := newTruth()
	s, err := start(ctx, t.server, t.namespace, known)
	if err != nil {
		return row{}, err
	}
	defer s.stop()
	ctx, stop := context.WithTimeout(ctx, t.lasts)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	for i := range t.clients {
		g.Go(func() error {
			c := &client{server: s, truth: known, namespace: t.namespace, seed: t.seed, number: uint64(i)}
			return c.run(ctx, t.kind)
		})
	}
	var all []judged
	var looks int
	var cost time.Duration
	g.Go(func() (err error) {
		all, looks, cost, err = t.look(ctx, s.port)
		return err
	})
	if err := g.Wait(); err != nil {
		return row{}, err
	}
	return tabulate(t, known, all, looks, cost), nil
}

// look looks at the server's connections until ctx ends.
func (t trial) look(ctx context.Context, port uint16) (all []judged, looks int, cost time.Duration, err error) {
	classifier := requests.New()
	tick := time.NewTicker(t.every)
	defer tick.Stop()
	err = t.namespace.Do(func() error {
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
			figures := figuresOf(l, port)
			verdicts := classifier.Look(l.At, figures)
			looks, cost = looks+1, cost+time.Since(l.At)
			for i := range figures {
				all = append(all, judged{l.At, read, figures[i].Peer, verdicts[i].Strict, verdicts[i].Wide})
			}
		}
	})
	return all, looks, cost, err
}

func figuresOf(l sockdiag.Look, port uint16) []requests.Figures {
	var all []requests.Figures
	for i, s := range l.Sockets {
		if s.Local.Port() == port {
			all = append(all, looks.Figures(s, l.Traffic[i]))
		}
	}
	return all
}
