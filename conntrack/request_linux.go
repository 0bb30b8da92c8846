package conntrack

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/netfilter"
)

// CTA_FILTER says which parts of the tuples the kernel compares.
const (
	ctaFilter   = 25
	filterIPSrc = 1

	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2
)

// dumpRequest returns the message that asks for a walk of the table. For all flows
// the family stays unspecified on purpose: a walk that skips the other family's
// entries in the kernel would hold a CPU with bottom halves off for as long as
// nothing matches. The kernel's filter for IPv6 addresses is inverted (seen on
// 6.18), so there is none for them. A kernel older than 5.8 ignores the filter:
// the answer has to be matched again.
func dumpRequest(s selection) (netlink.Message, error) {
	h := netfilter.Header{
		SubsystemID: netfilter.NFSubsysCTNetlink,
		MessageType: netfilter.MessageType(msgGet & 0xff),
		Flags:       netlink.Request | netlink.Dump,
	}
	var attrs []netfilter.Attribute
	switch {
	case s.source.Is4():
		h.Family = netfilter.ProtoIPv4
		attrs = sourceFilter(s)
	case s.source.IsValid():
		return netlink.Message{}, fmt.Errorf("encode filter for %s: %w", s.source, errNoFilter)
	}
	m, err := netfilter.MarshalNetlink(h, attrs)
	if err != nil {
		return m, fmt.Errorf("encode dump request: %w", err)
	}
	return m, nil
}

func sourceFilter(s selection) []netfilter.Attribute {
	tupleType, flagsType := uint16(ctaTupleReply), uint16(ctaFilterReplyFlags)
	if s.dir == dirOrig {
		tupleType, flagsType = ctaTupleOrig, ctaFilterOrigFlags
	}
	return []netfilter.Attribute{
		{Type: tupleType, Nested: true, Children: []netfilter.Attribute{
			{Type: ctaTupleIP, Nested: true, Children: []netfilter.Attribute{
				{Type: ctaIPv4Src, Data: s.source.AsSlice()},
			}},
		}},
		{Type: ctaFilter, Nested: true, Children: []netfilter.Attribute{
			// In the byte order of the host, unlike all else.
			{Type: flagsType, Data: binary.NativeEndian.AppendUint32(nil, filterIPSrc)},
		}},
	}
}
