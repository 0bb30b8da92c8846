//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// noKeepAlive leaves out TCP's keepalive packets: each would count as a packet of
// the session that a test wants to be quiet.
const noKeepAlive = -1

// Listen listens inside of n. The address is an IP address (or nothing) and a
// port; port 0 takes a free one. No connection sends TCP keepalive packets.
func (n *Namespace) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	var l net.Listener
	err := n.Do(func() error {
		c := net.ListenConfig{KeepAlive: noKeepAlive}
		var err error
		l, err = c.Listen(ctx, network, address)
		return err
	})
	return l, err
}

// ListenPacket opens an unconnected packet socket inside of n.
func (n *Namespace) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	var p net.PacketConn
	err := n.Do(func() error {
		var c net.ListenConfig
		var err error
		p, err = c.ListenPacket(ctx, network, address)
		return err
	})
	return p, err
}

// Dial connects from inside of n. It blocks until the connection stands, the
// kernel gives up or ctx ends. A neighbour that does not answer is asked again a
// few times: on a starved machine it may only be late. The address must be an IP
// address and a port: a name would be asked for outside of n. It sends no TCP
// keepalive packets.
func (n *Namespace) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	var conn net.Conn
	var err error
	for range neighbourTries {
		err = n.Do(func() error {
			d := net.Dialer{KeepAlive: noKeepAlive}
			var err error
			conn, err = d.DialContext(ctx, network, address)
			return err
		})
		// Without a route at all the answer comes at once, and is the same again.
		if !errors.Is(err, unix.EHOSTUNREACH) || ctx.Err() != nil {
			break
		}
	}
	return conn, err
}

// neighbourTries is how often Dial tries; each takes the kernel three seconds.
const neighbourTries = 10
