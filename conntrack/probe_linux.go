package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// probe finds out whether the kernel tracks connections of a family in the
// namespace at all: it sends one datagram from loopback to loopback and asks for
// its flow. It returns ErrNotTracking if there is none, or none could be sent.
func (k *netlinkKernel) probe(ctx context.Context, ipv6 bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var key flowKey
	err := inNamespace(k.netns, func() error {
		var err error
		key, err = sendToSelf(ctx, ipv6)
		return err
	})
	if err != nil {
		return fmt.Errorf("no probe could be sent over loopback (%w): %w", err, ErrNotTracking)
	}
	a, err := k.asker()
	if err != nil {
		return err
	}
	tracked := false
	err = a.ask([]flowKey{key}, func(_ int, e *entry) { tracked = e != nil })
	if err := errors.Join(err, a.close()); err != nil {
		return err
	}
	if !tracked {
		return ErrNotTracking
	}
	return nil
}

// sendToSelf sends a datagram between two sockets on loopback and returns the
// flow that it makes.
func sendToSelf(ctx context.Context, ipv6 bool) (key flowKey, err error) {
	network, address := "udp4", "127.0.0.1:0"
	if ipv6 {
		network, address = "udp6", "[::1]:0"
	}
	var lc net.ListenConfig
	to, err := lc.ListenPacket(ctx, network, address)
	if err != nil {
		return key, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	from, err := lc.ListenPacket(ctx, network, address)
	if err != nil {
		return key, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if _, err := from.WriteTo([]byte{0}, to.LocalAddr()); err != nil {
		return key, err
	}
	return flowKey{proto: UDP, orig: tuple{src: udpAddr(from), dst: udpAddr(to)}}, nil
}

func udpAddr(c net.PacketConn) netip.AddrPort {
	a, ok := c.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port())
}
