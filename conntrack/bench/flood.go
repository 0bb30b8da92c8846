//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// Messages and attributes of ctnetlink.
const (
	msgNew       = unix.NFNL_SUBSYS_CTNETLINK << 8
	msgDelete    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
	attrOrig     = 1
	attrReply    = 2
	attrStatus   = 3
	attrInfo     = 4
	attrTimeout  = 7
	floodEntries = 100
)

// flow makes and removes entries of other addresses in n until ctx ends, as many
// as cause rate events a second, and returns how many events it caused.
func flow(ctx context.Context, n *netlab.Namespace, rate int) (int, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: n.FD()})
	if err != nil {
		return 0, fmt.Errorf("flood: %w", err)
	}
	defer func() { _ = c.Close() }()
	batch, err := floodBatch()
	if err != nil {
		return 0, err
	}
	const events = 2 * floodEntries // one for each new entry, one for its end
	caused := 0
	for began := time.Now(); ; {
		due := began.Add(time.Duration(float64(caused) / float64(rate) * float64(time.Second)))
		if d := time.Until(due); d > 0 {
			if pause(ctx, d) != nil {
				return caused, nil
			}
		} else if ctx.Err() != nil {
			return caused, nil
		}
		// The kernel has done all of it when this returns. It answers only the last
		// one, and errors.
		if _, err := c.SendMessages(batch); err != nil {
			return caused, fmt.Errorf("flood: %w", err)
		}
		if _, err := c.Receive(); err != nil {
			return caused, fmt.Errorf("flood: %w", err)
		}
		caused += events
	}
}

// floodBatch are messages that make some entries and remove each of them again.
func floodBatch() ([]netlink.Message, error) {
	var batch []netlink.Message
	for i := range floodEntries {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, 0, byte(i)}), uint16(30000+i))
		server := netip.MustParseAddrPort("10.244.9.9:8080")
		ae := netlink.NewAttributeEncoder()
		ae.ByteOrder = binary.BigEndian
		ae.Nested(attrOrig, tuple(client, server))
		ae.Nested(attrReply, tuple(server, client))
		ae.Uint32(attrStatus, netlab.StatusSeenReply|netlab.StatusAssured|netlab.StatusUnreplied)
		ae.Uint32(attrTimeout, 600)
		ae.Nested(attrInfo, func(ae *netlink.AttributeEncoder) error {
			ae.Nested(1, func(ae *netlink.AttributeEncoder) error {
				ae.Uint8(1, netlab.TCPEstablished)
				return nil
			})
			return nil
		})
		create, err := ae.Encode()
		if err != nil {
			return nil, err
		}
		ae = netlink.NewAttributeEncoder()
		ae.ByteOrder = binary.BigEndian
		ae.Nested(attrOrig, tuple(client, server))
		remove, err := ae.Encode()
		if err != nil {
			return nil, err
		}
		batch = append(batch,
			message(msgNew, netlink.Request|netlink.Create|netlink.Excl, create),
			message(msgDelete, netlink.Request, remove))
	}
	batch[len(batch)-1].Header.Flags |= netlink.Acknowledge
	return batch, nil
}

// message is one of ctnetlink about IPv4.
func message(kind netlink.HeaderType, flags netlink.HeaderFlags, attributes []byte) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: kind, Flags: flags},
		Data:   append([]byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0}, attributes...),
	}
}

// tuple is one direction of a TCP flow.
func tuple(from, to netip.AddrPort) func(*netlink.AttributeEncoder) error {
	return func(ae *netlink.AttributeEncoder) error {
		ae.Nested(1, func(ae *netlink.AttributeEncoder) error {
			ae.Bytes(1, from.Addr().AsSlice())
			ae.Bytes(2, to.Addr().AsSlice())
			return nil
		})
		ae.Nested(2, func(ae *netlink.AttributeEncoder) error {
			ae.Uint8(1, unix.IPPROTO_TCP)
			ae.Uint16(2, from.Port())
			ae.Uint16(3, to.Port())
			return nil
		})
		return nil
	}
}
