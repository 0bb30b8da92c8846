//go:build linux

package netlab

import (
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// LabOptions say how a Lab differs from the usual one.
type LabOptions struct {
	// ServicePort at the service addresses leads to PodPort of the pod, by TCP and
	// UDP. 80 and 8080 unless set.
	ServicePort, PodPort uint16
	// NodePort at the node's addresses leads there too. 0 is none.
	NodePort uint16
	// Untracked leaves out everything that makes the node track, and with it the
	// service and node ports.
	Untracked bool
}

// Lab is a client, a node and a pod on it. The client reaches the pod through
// the node, which tracks connections and has the Service's address.
//
//	client ---- node ---- pod
//
// IPv6 addresses are invalid where the kernel has no IPv6.
type Lab struct {
	Client, Node, Pod *Namespace

	ClientAddr, ClientAddr6 netip.Addr
	// NodeAddr is the node's address on the client's side.
	NodeAddr, NodeAddr6 netip.Addr
	// GatewayAddr is the node's address on the pod's side, from which a kubelet
	// would probe.
	GatewayAddr, GatewayAddr6 netip.Addr
	PodAddr, PodAddr6         netip.Addr
	ServiceAddr, ServiceAddr6 netip.Addr
	// ServicePort is open at the service addresses, PodPort is where it leads.
	ServicePort, PodPort uint16
}

// NewLab builds a Lab. The names of its links are to-node in client and pod, and
// to-client and to-pod in the node.
func NewLab(o LabOptions) (*Lab, error) {
	l := &Lab{
		ClientAddr:   netip.MustParseAddr("192.168.10.20"),
		ClientAddr6:  netip.MustParseAddr("fd00:10::20"),
		NodeAddr:     netip.MustParseAddr("192.168.10.1"),
		NodeAddr6:    netip.MustParseAddr("fd00:10::1"),
		GatewayAddr:  netip.MustParseAddr("10.244.1.1"),
		GatewayAddr6: netip.MustParseAddr("fd00:244:1::1"),
		PodAddr:      netip.MustParseAddr("10.244.1.7"),
		PodAddr6:     netip.MustParseAddr("fd00:244:1::7"),
		ServiceAddr:  netip.MustParseAddr("10.96.0.10"),
		ServiceAddr6: netip.MustParseAddr("fd00:96::10"),
		ServicePort:  o.ServicePort,
		PodPort:      o.PodPort,
	}
	if l.ServicePort == 0 {
		l.ServicePort = 80
	}
	if l.PodPort == 0 {
		l.PodPort = 8080
	}
	if err := l.build(o); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close lets go of all three namespaces. Further calls do nothing.
func (l *Lab) Close() error {
	var errs []error
	for _, n := range []*Namespace{l.Client, l.Pod, l.Node} {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) build(o LabOptions) error {
	for _, n := range []**Namespace{&l.Client, &l.Node, &l.Pod} {
		made, err := New()
		if err != nil {
			return err
		}
		*n = made
	}
	if !l.Node.HasIPv6() {
		for _, a := range []*netip.Addr{&l.ClientAddr6, &l.NodeAddr6, &l.GatewayAddr6, &l.PodAddr6, &l.ServiceAddr6} {
			*a = netip.Addr{}
		}
	}
	if err := l.connect(); err != nil {
		return err
	}
	if o.Untracked {
		return nil
	}
	return l.serve(o.NodePort)
}

func (l *Lab) connect() error {
	if err := Connect(l.Client, "to-node", onLink(l.ClientAddr, l.ClientAddr6),
		l.Node, "to-client", onLink(l.NodeAddr, l.NodeAddr6)); err != nil {
		return err
	}
	if err := Connect(l.Node, "to-pod", onLink(l.GatewayAddr, l.GatewayAddr6),
		l.Pod, "to-node", onLink(l.PodAddr, l.PodAddr6)); err != nil {
		return err
	}
	if err := l.Node.Forward(); err != nil {
		return err
	}
	for _, r := range []struct {
		n   *Namespace
		via netip.Addr
	}{
		{l.Client, l.NodeAddr},
		{l.Client, l.NodeAddr6},
		{l.Pod, l.GatewayAddr},
		{l.Pod, l.GatewayAddr6},
		// The node itself needs some route to the Service before it is translated.
		{l.Node, l.ClientAddr},
		{l.Node, l.ClientAddr6},
	} {
		if !r.via.IsValid() {
			continue
		}
		everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if r.via.Is6() {
			everywhere = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if err := r.n.Route(everywhere, r.via); err != nil {
			return err
		}
	}
	return nil
}

// serve makes the node track and gives it the Service.
func (l *Lab) serve(nodePort uint16) error {
	if err := l.Node.Track(); err != nil {
		return err
	}
	for _, s := range []struct {
		addr netip.Addr
		port uint16
		to   netip.Addr
	}{
		{l.ServiceAddr, l.ServicePort, l.PodAddr},
		{l.ServiceAddr6, l.ServicePort, l.PodAddr6},
		{l.NodeAddr, nodePort, l.PodAddr},
		{l.NodeAddr6, nodePort, l.PodAddr6},
	} {
		if !s.addr.IsValid() || s.port == 0 {
			continue
		}
		for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			if err := l.Node.DNAT(proto, netip.AddrPortFrom(s.addr, s.port), netip.AddrPortFrom(s.to, l.PodPort)); err != nil {
				return err
			}
		}
	}
	return nil
}

// onLink returns the addresses with the length of a link's prefix, without an
// invalid one.
func onLink(a4, a6 netip.Addr) []netip.Prefix {
	ps := []netip.Prefix{netip.PrefixFrom(a4, 24)}
	if a6.IsValid() {
		ps = append(ps, netip.PrefixFrom(a6, 64))
	}
	return ps
}
