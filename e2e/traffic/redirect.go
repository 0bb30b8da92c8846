package traffic

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Redirect sends what comes to a TCP port of this network namespace to another port of it, as a mesh's init container
// does. What the namespace itself sends is not redirected, so that the proxy reaches the server. Needs CAP_NET_ADMIN.
func Redirect(from, to int) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "traffic-redirect"})
	chain := c.AddChain(&nftables.Chain{
		Name: "prerouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest,
	})
	const register = 1
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{unix.IPPROTO_TCP}},
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}, // its port
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binaryutil.BigEndian.PutUint16(uint16(from))},
		&expr.Immediate{Register: register, Data: binaryutil.BigEndian.PutUint16(uint16(to))},
		&expr.Redir{RegisterProtoMin: register},
	}})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("redirect port %d to %d: %w; it needs CAP_NET_ADMIN", from, to, err)
	}
	return nil
}
