//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// link is a way from the clients to the servers.
type link struct {
	name string
	wire wire // without a delay it is none, but a pair of devices of the kernel
}

func (l link) direct() bool { return l.wire.delay == 0 }

// linkNames are all, linksOf makes those of the names.
var linkNames = []string{"direct", "2ms", "20ms", "lossy"}

func linksOf(names string) ([]link, error) {
	var links []link
	for name := range strings.SplitSeq(names, ",") {
		l := link{name: name}
		switch name {
		case "direct":
		case "2ms":
			l.wire.delay = time.Millisecond
		case "20ms":
			l.wire.delay = 10 * time.Millisecond
		case "lossy":
			l.wire.delay, l.wire.jitter, l.wire.loss = 10*time.Millisecond, 5*time.Millisecond, 0.005
		default:
			return nil, fmt.Errorf("no link is called %q: they are %s", name, strings.Join(linkNames, ", "))
		}
		links = append(links, l)
	}
	return links, nil
}

// ground is where servers and clients are.
type ground struct {
	clients, servers *netlab.Namespace
	links            []link
	carriers         *errgroup.Group
	stop             context.CancelFunc
}

// newGround makes two namespaces and the links between them. Nothing of it is left
// after its end.
func newGround(ctx context.Context, links []link, seed uint64) (*ground, error) {
	ctx, stop := context.WithCancel(ctx)
	g := &ground{links: links, stop: stop}
	g.carriers, ctx = errgroup.WithContext(ctx)
	if err := g.build(ctx, seed); err != nil {
		return nil, errors.Join(err, g.end())
	}
	return g, nil
}

func (g *ground) build(ctx context.Context, seed uint64) (err error) {
	if g.clients, err = netlab.New(); err != nil {
		return err
	}
	if g.servers, err = netlab.New(); err != nil {
		return err
	}
	for i := range g.links {
		l := &g.links[i]
		name := "bench-" + l.name
		near, far := netip.PrefixFrom(linkAddress(i, 1), 24), netip.PrefixFrom(linkAddress(i, 2), 24)
		if l.direct() {
			if err := netlab.Connect(g.clients, name, []netip.Prefix{near}, g.servers, name, []netip.Prefix{far}); err != nil {
				return err
			}
			continue
		}
		if err := l.wire.lay(name, g.clients, near, g.servers, far); err != nil {
			return err
		}
		g.carriers.Go(func() error { return l.wire.carry(ctx, seed+uint64(i)) })
	}
	return nil
}

// end stops the links and lets go of the namespaces.
func (g *ground) end() error {
	g.stop()
	err := g.carriers.Wait()
	for _, n := range []*netlab.Namespace{g.clients, g.servers} {
		if n != nil {
			err = errors.Join(err, n.Close())
		}
	}
	return err
}

// server is the servers' address on a link.
func (g *ground) server(l string) netip.Addr {
	return linkAddress(slices.IndexFunc(g.links, func(k link) bool { return k.name == l }), 2)
}

func linkAddress(place int, end byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 88, byte(place), end})
}

// onlyLink is an end's address where there is one link.
func onlyLink(end byte) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(linkAddress(0, end), 24)}
}
