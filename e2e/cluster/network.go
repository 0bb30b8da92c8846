package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// bridgeName is the bridge in the namespace "switch", which every other namespace has a cable to.
const bridgeName = "switch"

// network is the cluster's wiring: a switch, and a namespace with an eth0 for each host.
type network struct {
	dir  string // holds a file per namespace
	plan plan
}

func (n network) namespace(name string) Namespace { return Namespace{filepath.Join(n.dir, name)} }

// makeSwitch makes the namespace that the others are joined in.
func (n network) makeSwitch() error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return fmt.Errorf("make folder of network namespaces: %w", err)
	}
	ns, err := newNamespace(filepath.Join(n.dir, bridgeName))
	if err != nil {
		return err
	}
	return ns.with(func(h *netlink.Handle) error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
		if err := h.LinkAdd(bridge); err != nil {
			return fmt.Errorf("add bridge: %w", err)
		}
		return h.LinkSetUp(bridge)
	})
}

// makeHost makes the namespace of a host: its cable to the switch, its addresses, and routes to the pods of every node.
func (n network) makeHost(name string, number, nodes int) error {
	ns, err := newNamespace(filepath.Join(n.dir, name))
	if err != nil {
		return err
	}
	if err := n.cable(name); err != nil {
		return fmt.Errorf("join %s to the switch: %w", name, err)
	}
	if err := ns.Do(skipAddressDetection); err != nil {
		return err
	}
	return ns.with(func(h *netlink.Handle) error {
		return n.configure(h, name, number, nodes)
	})
}

// cable adds a pair of devices: eth0 at the host, and one with the host's name at the switch.
func (n network) cable(name string) error {
	far, err := netns.GetFromPath(n.namespace(name).path)
	if err != nil {
		return err
	}
	defer far.Close()
	return n.namespace(bridgeName).with(func(h *netlink.Handle) error {
		bridge, err := h.LinkByName(bridgeName)
		if err != nil {
			return err
		}
		port := &netlink.Veth{
			LinkAttrs:     netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index},
			PeerName:      "eth0",
			PeerNamespace: netlink.NsFd(far),
		}
		if err := h.LinkAdd(port); err != nil {
			return err
		}
		return h.LinkSetUp(port)
	})
}

func (n network) configure(h *netlink.Handle, name string, number, nodes int) error {
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo of %s: %w", name, err)
	}
	eth0, err := h.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0 of %s: %w", name, err)
	}
	for _, prefix := range n.plan.host(number) {
		if err := h.AddrAdd(eth0, &netlink.Addr{IPNet: ipNet(prefix)}); err != nil {
			return fmt.Errorf("add address %s to %s: %w", prefix, name, err)
		}
	}
	for _, link := range []netlink.Link{lo, eth0} {
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s of %s up: %w", link.Attrs().Name, name, err)
		}
	}
	// the kubelet looks for its address where the default route goes, so that there has to be one, to nobody
	for i, prefix := range n.plan.anywhere() {
		if err := addRoute(h, eth0, prefix, n.plan.host(1)[i].Addr()); err != nil {
			return fmt.Errorf("add default route of %s: %w", name, err)
		}
	}
	for node := 1; node <= nodes; node++ {
		if nodeNumber(node) == number {
			continue
		}
		for i, pods := range n.plan.pods(node) {
			if err := addRoute(h, eth0, pods, n.plan.host(nodeNumber(node))[i].Addr()); err != nil {
				return fmt.Errorf("add route from %s to the pods of node %d: %w", name, node, err)
			}
		}
	}
	return nil
}

// setCable takes a host off the switch or puts it back. The host's own device stays up with its addresses and routes, as
// after a failure somewhere in the network.
func (n network) setCable(name string, on bool) error {
	return n.namespace(bridgeName).with(func(h *netlink.Handle) error {
		port, err := h.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find cable of %s: %w", name, err)
		}
		if !on {
			return h.LinkSetNoMaster(port)
		}
		bridge, err := h.LinkByName(bridgeName)
		if err != nil {
			return fmt.Errorf("find switch: %w", err)
		}
		return h.LinkSetMaster(port, bridge)
	})
}

// AddAddress gives the namespace another address on the network that joins all machines: a client of its own.
func (n Namespace) AddAddress(address string) error {
	return n.changeAddress(address, (*netlink.Handle).AddrAdd)
}

// RemoveAddress takes it away. Its connections are neither closed nor answered any more, as if the client were gone.
func (n Namespace) RemoveAddress(address string) error {
	return n.changeAddress(address, (*netlink.Handle).AddrDel)
}

func (n Namespace) changeAddress(address string, change func(*netlink.Handle, netlink.Link, *netlink.Addr) error) error {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("change addresses: %w", err)
	}
	return n.with(func(h *netlink.Handle) error {
		eth0, err := h.LinkByName("eth0")
		if err != nil {
			return fmt.Errorf("find eth0: %w", err)
		}
		if err := change(h, eth0, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, a.BitLen()))}); err != nil {
			return fmt.Errorf("change address %s: %w", address, err)
		}
		return nil
	})
}

// with calls f with a netlink socket of the namespace.
func (n Namespace) with(f func(*netlink.Handle) error) error {
	ns, err := netns.GetFromPath(n.path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", n.path, err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("open netlink in network namespace %s: %w", n.path, err)
	}
	defer h.Close()
	return f(h)
}

// skipAddressDetection lets IPv6 addresses be used at once: nobody else has them.
func skipAddressDetection() error {
	for _, scope := range []string{"all", "default", "eth0"} {
		name := "/proc/sys/net/ipv6/conf/" + scope + "/accept_dad"
		if err := os.WriteFile(name, []byte("0"), 0o644); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("turn off duplicate address detection: %w", err)
		}
	}
	return nil
}

func addRoute(h *netlink.Handle, link netlink.Link, to netip.Prefix, via netip.Addr) error {
	return h.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Gw: via.AsSlice()})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
