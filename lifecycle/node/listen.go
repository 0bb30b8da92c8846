package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// listenAgain is how long after a failure a port is tried again.
const listenAgain = 2 * time.Second

// deaf are the addresses that the helper cannot listen on at the moment, and why.
// It is safe for concurrent use.
type deaf struct {
	mu  sync.Mutex
	why map[string]error
}

// set notes why an address cannot be listened on, nil for that it can, and says
// whether that is news.
func (d *deaf) set(address string, why error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, before := d.why[address]
	if why == nil {
		delete(d.why, address)
		return before
	}
	if d.why == nil {
		d.why = make(map[string]error)
	}
	d.why[address] = why
	return !before
}

// Err says what cannot be listened on, or nothing.
func (d *deaf) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, address := range slices.Sorted(maps.Keys(d.why)) {
		all = append(all, fmt.Sprintf("cannot listen on %s: %v", address, d.why[address]))
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}

// serve runs a server on one address until ctx ends. A port that is taken keeps
// the helper from nothing else: people are told, and it is tried again. Whoever is
// not known, where somebody is, gets few connections.
func (h *Helper) serve(ctx context.Context, g *errgroup.Group, a netip.Addr, port uint16, s *http.Server, known func(netip.Addr) bool) {
	address := net.JoinHostPort(a.String(), strconv.Itoa(int(port)))
	g.Go(func() error {
		<-ctx.Done()
		last, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer stop()
		if err := s.Shutdown(last); err != nil {
			return s.Close()
		}
		return nil
	})
	g.Go(func() error {
		for {
			err := h.serveOnce(ctx, address, s, known)
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			if ctx.Err() == nil && h.deaf.set(address, err) {
				h.config.Logger.Error("a port cannot be listened on: it is tried again", "address", address, "err", err)
				h.events.deaf(h.config.Node, address, err)
			}
			select {
			case <-time.After(listenAgain):
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// serveOnce blocks until the server has been shut down or cannot go on.
func (h *Helper) serveOnce(ctx context.Context, address string, s *http.Server, known func(netip.Addr) bool) error {
	l, err := h.listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	h.deaf.set(address, nil)
	h.config.Logger.Info("listening", "address", l.Addr().String())
	return s.Serve(newLimitListener(l, known))
}
