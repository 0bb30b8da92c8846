package sockdiag

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// errInterrupted is a dump that the kernel itself calls inconsistent.
var errInterrupted = errors.New("the kernel's list changed while it was read")

// attempts bounds how often a dump is begun again. It takes milliseconds, so
// whoever cannot get a whole one in so many has to be told.
const attempts = 5

// dumpFunc calls add for each TCP socket of one address family that counts or
// listens, with its traffic where that is asked for. An error means that what it
// has added so far is not whole.
type dumpFunc func(ctx context.Context, family uint8, traffic bool, add func(answer)) error

// Take looks at the TCP sockets of the network namespace of the calling thread.
//
// It blocks for the time that the kernel needs, some milliseconds for ten
// thousand sockets, or until the context is done. A dump that the kernel could not
// finish in one piece is begun again some times; after that the error says so,
// and no part of it is returned. errors.ErrUnsupported is returned where the
// kernel has no tcp_diag, and on other systems. It may be called concurrently. It
// needs no rights; a seccomp filter must allow netlink sockets.
func Take(ctx context.Context) (Look, error) {
	return take(ctx, dump, false, ownAddresses)
}

// TakeTraffic is Take, and reads what each connection has sent and received as
// well. That takes half as long again.
func TakeTraffic(ctx context.Context) (Look, error) {
	return take(ctx, dump, true, ownAddresses)
}

func take(ctx context.Context, dump dumpFunc, traffic bool, ownAddresses func() ([]netip.Addr, error)) (Look, error) {
	var err error
	for range attempts {
		if ctx.Err() != nil {
			break
		}
		look := Look{At: time.Now()}
		if err = dumpBoth(ctx, dump, traffic, look.add); err == nil {
			own, err := ownAddresses()
			if err != nil {
				return Look{}, fmt.Errorf("list own addresses: %w", err)
			}
			look.finish(own)
			return look, nil
		}
		if ctx.Err() == nil && !retriable(err) {
			return Look{}, fmt.Errorf("list sockets: %w", err)
		}
	}
	if ctx.Err() != nil {
		return Look{}, fmt.Errorf("list sockets: %w", context.Cause(ctx))
	}
	return Look{}, fmt.Errorf("list sockets, %d times: %w", attempts, err)
}

// dumpBoth asks for both families, because a dual-stack listener's connections
// are IPv6 sockets even where the peer speaks IPv4.
func dumpBoth(ctx context.Context, dump dumpFunc, traffic bool, add func(answer)) error {
	for _, family := range []uint8{familyIPv4, familyIPv6} {
		if err := dump(ctx, family, traffic, add); err != nil {
			return err
		}
	}
	return nil
}

func ownAddresses() ([]netip.Addr, error) {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(nets))
	for _, n := range nets {
		if ipnet, ok := n.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(ipnet.IP); ok {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs, nil
}
