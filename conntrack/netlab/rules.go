//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is the one table that all rules of this package live in.
const tableName = "netlab"

// chain is a base chain of the table.
type chain struct {
	name     string
	kind     nftables.ChainType
	hook     *nftables.ChainHook
	priority *nftables.ChainPriority
}

var (
	rawPrerouting  = chain{"raw-prerouting", nftables.ChainTypeFilter, nftables.ChainHookPrerouting, nftables.ChainPriorityRaw}
	rawOutput      = chain{"raw-output", nftables.ChainTypeFilter, nftables.ChainHookOutput, nftables.ChainPriorityRaw}
	natPrerouting  = chain{"nat-prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest}
	natOutput      = chain{"nat-output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest}
	natPostrouting = chain{"nat-postrouting", nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource}
	input          = chain{"input", nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityFilter}
)

// Track makes n track connections of IPv4 and IPv6: without a rule that asks
// for a connection's state the kernel does not.
func (n *Namespace) Track() error {
	return n.rules("track", func(add func(chain, ...expr.Any)) {
		add(input, &expr.Ct{Key: expr.CtKeySTATE, Register: 1})
	})
}

// NoTrack exempts all packets from and to an address from tracking, as a data
// path does that bypasses it.
func (n *Namespace) NoTrack(addr netip.Addr) error {
	return n.rules("notrack", func(add func(chain, ...expr.Any)) {
		for _, c := range []chain{rawPrerouting, rawOutput} {
			add(c, join(matchSource(netip.PrefixFrom(addr, addr.BitLen())), &expr.Notrack{})...)
			add(c, join(matchDestination(netip.PrefixFrom(addr, addr.BitLen())), &expr.Notrack{})...)
		}
	})
}

// DNAT rewrites the destination service to to, for packets that come in and for
// those of n itself. proto is an IP protocol number with ports.
func (n *Namespace) DNAT(proto uint8, service, to netip.AddrPort) error {
	return n.rules("dnat", func(add func(chain, ...expr.Any)) {
		for _, c := range []chain{natPrerouting, natOutput} {
			match := matchDestination(netip.PrefixFrom(service.Addr(), service.Addr().BitLen()))
			match = join(match, matchPort(proto, service.Port())...)
			add(c, join(match,
				&expr.Immediate{Register: 1, Data: to.Addr().AsSlice()},
				&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(to.Port())},
				&expr.NAT{
					Type: expr.NATTypeDestNAT, Family: uint32(family(to.Addr())),
					RegAddrMin: 1, RegProtoMin: 2,
				})...)
		}
	})
}

// Redirect sends TCP connections that come in for port to the local port to, as
// the proxy of a service mesh has it inside of a pod. It makes n track.
func (n *Namespace) Redirect(port, to uint16) error {
	return n.rules("redirect", func(add func(chain, ...expr.Any)) {
		add(natPrerouting, join(matchPort(unix.IPPROTO_TCP, port),
			&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(to)},
			&expr.Redir{RegisterProtoMin: 1})...)
	})
}

// Drop lets no TCP packet for a port of n in, as a network policy does.
func (n *Namespace) Drop(port uint16) error {
	return n.rules("drop", func(add func(chain, ...expr.Any)) {
		add(input, join(matchPort(unix.IPPROTO_TCP, port), &expr.Verdict{Kind: expr.VerdictDrop})...)
	})
}

// Masquerade gives packets from src to dst the address of the link on which
// they leave n. An invalid prefix matches every address.
func (n *Namespace) Masquerade(src, dst netip.Prefix) error {
	return n.rules("masquerade", func(add func(chain, ...expr.Any)) {
		add(natPostrouting, join(join(matchSource(src), matchDestination(dst)...), &expr.Masq{})...)
	})
}

// rules adds rules to n in one transaction. The table and the chains are made
// when the first rule needs them.
func (n *Namespace) rules(what string, build func(add func(chain, ...expr.Any))) error {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.file == nil {
		return ErrClosed
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(n.file.Fd())))
	if err != nil {
		return fmt.Errorf("dial nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName})
	build(func(to chain, exprs ...expr.Any) {
		c.AddRule(&nftables.Rule{
			Table: table,
			Chain: c.AddChain(&nftables.Chain{
				Name: to.name, Table: table, Type: to.kind, Hooknum: to.hook, Priority: to.priority,
			}),
			Exprs: exprs,
		})
	})
	if err := c.Flush(); err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
			err = fmt.Errorf("%w: the kernel needs nftables with inet, ct and nat (CONFIG_NF_TABLES_INET, CONFIG_NFT_CT, CONFIG_NFT_NAT)", err)
		}
		return fmt.Errorf("add %s rules: %w", what, rights(err))
	}
	return nil
}

func join(a []expr.Any, b ...expr.Any) []expr.Any { return append(slices.Clip(a), b...) }

func matchSource(p netip.Prefix) []expr.Any { return matchAddress(p, 12, 8) }

func matchDestination(p netip.Prefix) []expr.Any { return matchAddress(p, 16, 24) }

// matchAddress matches an address in the network header, at the offset that it
// has in IPv4 or in IPv6.
func matchAddress(p netip.Prefix, offset4, offset6 uint32) []expr.Any {
	if !p.IsValid() {
		return nil
	}
	p = p.Masked()
	offset, size := offset4, uint32(4)
	if p.Addr().Is6() {
		offset, size = offset6, 16
	}
	mask := make([]byte, size)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family(p.Addr())}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: p.Addr().AsSlice()},
	}
}

// matchPort matches a protocol and its destination port.
func matchPort(proto uint8, port uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
	}
}
