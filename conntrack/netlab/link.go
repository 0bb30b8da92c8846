//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Connect makes a veth pair with one end in each of two namespaces, gives the
// ends their addresses and sets them up. Addresses are usable when it returns,
// IPv6 ones too.
func Connect(a *Namespace, aName string, aAddrs []netip.Prefix, b *Namespace, bName string, bAddrs []netip.Prefix) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.file == nil {
		return ErrClosed
	}
	err := a.route(func(c *rtnetlink.Conn) error {
		return c.Link.New(&rtnetlink.LinkMessage{
			Attributes: &rtnetlink.LinkAttributes{
				Name: aName,
				Info: &rtnetlink.LinkInfo{Kind: "veth", Data: &driver.Veth{
					PeerInfo: &rtnetlink.LinkMessage{Attributes: &rtnetlink.LinkAttributes{
						Name:  bName,
						NetNS: rtnetlink.NetNSForFD(uint32(b.file.Fd())),
					}},
				}},
			},
		})
	})
	if err != nil {
		return fmt.Errorf("create link %s to %s: %w", aName, bName, err)
	}
	type end struct {
		n     *Namespace
		name  string
		addrs []netip.Prefix
	}
	ends := []end{{a, aName, aAddrs}, {b, bName, bAddrs}}
	for _, e := range ends {
		if err := e.n.up(e.name); err != nil {
			return err
		}
	}
	for _, e := range ends {
		for _, p := range e.addrs {
			if err := e.n.Address(e.name, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// Address adds an address to a link of n; lo is one.
func (n *Namespace) Address(link string, p netip.Prefix) error {
	err := n.route(func(c *rtnetlink.Conn) error {
		l, err := linkByName(c, link)
		if err != nil {
			return err
		}
		m := &rtnetlink.AddressMessage{
			Family:       family(p.Addr()),
			PrefixLength: uint8(p.Bits()),
			Index:        l.Index,
			Scope:        unix.RT_SCOPE_UNIVERSE,
			Attributes: &rtnetlink.AddressAttributes{
				Address: p.Addr().AsSlice(),
				Local:   p.Addr().AsSlice(),
			},
		}
		if p.Addr().Is6() {
			m.Attributes.Flags = unix.IFA_F_NODAD
		}
		return c.Address.New(m)
	})
	if err != nil {
		return fmt.Errorf("add address %s to link %s: %w", p, link, err)
	}
	return nil
}

// Route sends packets for dst through the neighbour via. A prefix of no bits is
// the default route.
func (n *Namespace) Route(dst netip.Prefix, via netip.Addr) error {
	err := n.route(func(c *rtnetlink.Conn) error {
		m := &rtnetlink.RouteMessage{
			Family:     family(via),
			DstLength:  uint8(dst.Bits()),
			Table:      unix.RT_TABLE_MAIN,
			Protocol:   unix.RTPROT_STATIC,
			Scope:      unix.RT_SCOPE_UNIVERSE,
			Type:       unix.RTN_UNICAST,
			Attributes: rtnetlink.RouteAttributes{Gateway: via.AsSlice()},
		}
		if dst.Bits() > 0 {
			m.Attributes.Dst = net.IP(dst.Masked().Addr().AsSlice())
		}
		return c.Route.Add(m)
	})
	if err != nil {
		return fmt.Errorf("add route to %s via %s: %w", dst, via, err)
	}
	return nil
}

// Links returns the names of n's links.
func (n *Namespace) Links() ([]string, error) {
	var names []string
	err := n.route(func(c *rtnetlink.Conn) error {
		links, err := c.Link.List()
		for _, l := range links {
			names = append(names, l.Attributes.Name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return names, nil
}

// up sets a link up.
func (n *Namespace) up(link string) error {
	err := n.route(func(c *rtnetlink.Conn) error {
		l, err := linkByName(c, link)
		if err != nil {
			return err
		}
		return c.Link.Set(&rtnetlink.LinkMessage{
			Type: l.Type, Index: l.Index, Flags: unix.IFF_UP, Change: unix.IFF_UP,
		})
	})
	if err != nil {
		return fmt.Errorf("set link %s up: %w", link, err)
	}
	return nil
}

// route runs f with a route netlink connection inside of n.
func (n *Namespace) route(f func(*rtnetlink.Conn) error) error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.file == nil {
		return ErrClosed
	}
	c, err := rtnetlink.Dial(&netlink.Config{NetNS: int(n.file.Fd())})
	if err != nil {
		return fmt.Errorf("dial route netlink: %w", rights(err))
	}
	return errors.Join(f(c), c.Close())
}

func linkByName(c *rtnetlink.Conn, name string) (rtnetlink.LinkMessage, error) {
	links, err := c.Link.List()
	if err != nil {
		return rtnetlink.LinkMessage{}, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if l.Attributes.Name == name {
			return l, nil
		}
	}
	return rtnetlink.LinkMessage{}, fmt.Errorf("no link %q", name)
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
