package cluster

import (
	"fmt"
	"net/netip"
)

// Every cluster has the same addresses: no two share a network namespace.
//
//	outside   10.200.0.2   fd00:200::2     clients that are no pods, kubectl, tests
//	control   10.200.0.10  fd00:200::10    the control plane
//	n1        10.200.0.11  fd00:200::11    its pods: 10.244.1.0/24, fd00:244:1::/64
const (
	outsideNumber = 2
	controlNumber = 10
)

// plan hands out addresses; a slice has the families of the cluster in their order.
type plan struct{ families Families }

func (p plan) v4() bool { return p.families != IPv6 }
func (p plan) v6() bool { return p.families != IPv4 }

// host is the address of host number n on the network that joins all machines, with the network's prefix length. In
// IPv6 the number reads as in IPv4: fd00:200::11 is host 11.
func (p plan) host(n int) []netip.Prefix {
	return p.prefixes(fmt.Sprintf("10.200.0.%d/24", n), fmt.Sprintf("fd00:200::%d/64", n))
}

// pods are the networks of node n's pods.
func (p plan) pods(n int) []netip.Prefix {
	return p.prefixes(fmt.Sprintf("10.244.%d.0/24", n), fmt.Sprintf("fd00:244:%d::/64", n))
}

func (p plan) allPods() []netip.Prefix  { return p.prefixes("10.244.0.0/16", "fd00:244::/32") }
func (p plan) services() []netip.Prefix { return p.prefixes("10.96.0.0/16", "fd00:96::/112") }

// anywhere are the default routes' destinations.
func (p plan) anywhere() []netip.Prefix { return p.prefixes("0.0.0.0/0", "::/0") }

func (p plan) prefixes(v4, v6 string) []netip.Prefix {
	var all []netip.Prefix
	if p.v4() {
		all = append(all, netip.MustParsePrefix(v4))
	}
	if p.v6() {
		all = append(all, netip.MustParsePrefix(v6))
	}
	return all
}

// apiServer is the address that everybody reaches the API at.
func (p plan) apiServer() netip.Addr { return p.host(controlNumber)[0].Addr() }

// dns is where a cluster's DNS would be: the tenth address of Services.
func (p plan) dns() netip.Addr {
	address := p.services()[0].Addr()
	for range 10 {
		address = address.Next()
	}
	return address
}

// nodeNumber is the host number of node n, counted from 1.
func nodeNumber(n int) int { return controlNumber + n }

func addrs(prefixes []netip.Prefix) []string {
	var all []string
	for _, p := range prefixes {
		all = append(all, p.Addr().String())
	}
	return all
}

func texts(prefixes []netip.Prefix) []string {
	var all []string
	for _, p := range prefixes {
		all = append(all, p.String())
	}
	return all
}
