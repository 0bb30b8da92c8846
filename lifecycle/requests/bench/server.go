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

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// spot is a port that a server has to listen on, for one trial.
type spot struct {
	Port uint16
	// H2 asks for HTTP/2, GRPC for a gRPC server.
	H2, GRPC bool
}

// noter takes in what a server says of a request.
type noter func(id uint64, what moment, at time.Time)

// host is what servers run on.
type host struct {
	namespace *netlab.Namespace
	// dir is a directory of the server's own.
	dir   string
	note  noter
	spots []spot
	// secure asks for TLS, with the certificate and key of these files.
	secure           bool
	certificate, key string
}

// product is one of the servers that are measured.
type product struct {
	name string
	// start starts it; stop ends it and returns when all that it noted is noted.
	start func(context.Context, host) (stop func() error, err error)
}

var products = []product{
	{"go", startGo},
	{"nginx-go", startNginxBeforeGo},
	{"nginx", startNginx},
	{"node", startNode},
	{"gunicorn", startGunicorn},
}

// secureSuffix makes a server's name that of the same server with TLS.
const secureSuffix = "-tls"

func serverNames() []string {
	var names []string
	for _, p := range products {
		names = append(names, p.name, p.name+secureSuffix)
	}
	return names
}

// productOf finds a server by its name.
func productOf(name string) (p product, secure bool, err error) {
	plain, secure := strings.CutSuffix(name, secureSuffix)
	i := slices.IndexFunc(products, func(p product) bool { return p.name == plain })
	if i < 0 {
		return p, false, fmt.Errorf("no server is called %q: they are %s", name, strings.Join(serverNames(), ", "))
	}
	return products[i], secure, nil
}

// patience is how long a server may take to start.
const patience = 30 * time.Second

// listening waits until something listens on all the ports.
func listening(ctx context.Context, h host, died <-chan struct{}) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for _, s := range h.spots {
		to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port).String()
		for {
			c, err := h.namespace.Dial(ctx, "tcp", to)
			if err == nil {
				if err := c.Close(); err != nil {
					return err
				}
				break
			}
			select {
			case <-died:
				return errors.New("it has ended")
			case <-ctx.Done():
				return fmt.Errorf("wait until it listens: %w", err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}
