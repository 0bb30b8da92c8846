package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
)

// looker returns how to look at this namespace's sockets, or nil where they say
// nothing about the target: they know inbound TCP sessions of own addresses only.
func (f *waitFlags) looker() looker {
	t := f.target
	if t.Direction != conntrack.Inbound || !slices.Contains(t.Protocols, conntrack.TCP) || !allOwn(t.Addresses) {
		return nil
	}
	// A server that has stopped to listen goes on with what it has accepted.
	listened := slices.Clone(t.Ports)
	return func(ctx context.Context, served []uint16) (conntrack.SocketReport, error) {
		look, err := sockdiag.Take(ctx)
		if err != nil {
			return conntrack.SocketReport{}, err
		}
		for _, port := range slices.Concat(look.Listening, served) {
			if !slices.Contains(listened, port) {
				listened = append(listened, port)
			}
		}
		report := conntrack.SocketReport{At: look.At, BlindPorts: t.Ports}
		for _, s := range look.Counted(sockdiag.Scope{Listened: listened, Addresses: t.Addresses}) {
			report.Sockets = append(report.Sockets, conntrack.Socket{Local: s.Local, Peer: s.Peer})
		}
		return report, nil
	}
}

// allOwn says whether all addresses are ones of this network namespace.
func allOwn(addrs []netip.Addr) bool {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	var own []netip.Addr
	for _, n := range nets {
		if ipnet, ok := n.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(ipnet.IP); ok {
				own = append(own, a.Unmap())
			}
		}
	}
	for _, a := range addrs {
		if !slices.Contains(own, a.Unmap().WithZone("")) {
			return false
		}
	}
	return true
}

// warn says what is surprising about the target without being wrong.
func (f *targetFlags) warn(say func(string)) {
	for _, a := range f.target.Addresses {
		if a.IsLoopback() {
			say(fmt.Sprintf("%s is loopback: what connects an address with itself does not count", a))
		}
	}
}
