package main

import (
	"context"
	"net"
	"net/netip"
	"slices"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
)

// looker returns how to look at this namespace's sockets, or nil where they say
// nothing about the target: they know inbound TCP sessions of own addresses only.
func (f *waitFlags) looker() (looker, error) {
	t := f.target
	own, others := split(t.Addresses)
	tcp := len(t.Protocols) == 0 || slices.Contains(t.Protocols, conntrack.TCP)
	switch {
	case t.Direction == conntrack.Outbound || !tcp || len(own) == 0:
		return nil, nil
	case len(others) > 0:
		return nil, usagef("%s is an address of this network namespace and %s is not: wait for them one by one, because the sockets here tell of the former only", own[0], others[0])
	}
	// A server that has stopped to listen goes on with what it has accepted.
	listened := slices.Clone(t.Ports)
	var listening []uint16
	return func(ctx context.Context, served []uint16) (conntrack.SocketReport, error) {
		look, err := sockdiag.Take(ctx)
		if err != nil {
			return conntrack.SocketReport{}, err
		}
		listened = union(union(listened, look.Listening), served)
		listening = union(listening, look.Listening)
		report := conntrack.SocketReport{At: look.At, Listening: listening, BlindPorts: t.Ports}
		scope := sockdiag.Scope{Listened: listened, Addresses: t.Addresses}
		report.Sockets = toReport(look.Counted(scope))
		report.Local = toReport(look.Local(scope))
		report.Opening = toReport(look.Opening())
		return report, nil
	}, nil
}

// union adds to a set of ports what it does not have.
func union(set, more []uint16) []uint16 {
	for _, port := range more {
		if !slices.Contains(set, port) {
			set = append(set, port)
		}
	}
	return set
}

func toReport(sockets []sockdiag.Socket) []conntrack.Socket {
	reported := make([]conntrack.Socket, 0, len(sockets))
	for _, s := range sockets {
		reported = append(reported, conntrack.Socket{Local: s.Local, Peer: s.Peer})
	}
	return reported
}

// split tells the addresses of this network namespace from others.
func split(addrs []netip.Addr) (own, others []netip.Addr) {
	here := interfaceAddresses()
	for _, a := range addrs {
		if slices.Contains(here, a.Unmap().WithZone("")) {
			own = append(own, a)
		} else {
			others = append(others, a)
		}
	}
	return own, others
}

// interfaceAddresses are the addresses of this network namespace; none where they
// cannot be listed.
func interfaceAddresses() []netip.Addr {
	var here []netip.Addr
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, n := range nets {
		if ipnet, ok := n.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(ipnet.IP); ok {
				here = append(here, a.Unmap())
			}
		}
	}
	return here
}
