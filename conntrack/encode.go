package conntrack

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/netlink"
)

// familyOf returns the netfilter family (NFPROTO_*) of an address.
func familyOf(a netip.Addr) byte {
	if a.Is4() {
		return 2
	}
	return 10
}

// appendGet appends the request for exactly one flow to b, ready to be sent
// together with others. It is written by hand because a re-check sends thousands
// of them.
func appendGet(b []byte, k flowKey, seq uint32) []byte {
	start := len(b)
	b = append(b, make([]byte, nlmsgHeaderLen)...)
	b = append(b, familyOf(k.orig.src.Addr()), 0, 0, 0) // nfgenmsg

	b, tuple := openNest(b, ctaTupleOrig)
	b, ip := openNest(b, ctaTupleIP)
	src, dst := k.orig.src.Addr(), k.orig.dst.Addr()
	if src.Is4() {
		s, d := src.As4(), dst.As4()
		b = appendAttribute(b, ctaIPv4Src, s[:])
		b = appendAttribute(b, ctaIPv4Dst, d[:])
	} else {
		s, d := src.As16(), dst.As16()
		b = appendAttribute(b, ctaIPv6Src, s[:])
		b = appendAttribute(b, ctaIPv6Dst, d[:])
	}
	closeNest(b, ip)
	b, proto := openNest(b, ctaTupleProto)
	b = appendAttribute(b, ctaProtoNum, []byte{byte(k.proto)})
	b = appendUint16(b, ctaProtoSrcPort, k.orig.src.Port())
	b = appendUint16(b, ctaProtoDstPort, k.orig.dst.Port())
	closeNest(b, proto)
	if k.orig.zone != 0 {
		b = appendUint16(b, ctaTupleZone, k.orig.zone)
	}
	closeNest(b, tuple)
	if k.zone != 0 {
		b = appendUint16(b, ctaZone, k.zone)
	}

	h := b[start:]
	binary.NativeEndian.PutUint32(h, uint32(len(h)))
	binary.NativeEndian.PutUint16(h[4:], uint16(msgGet))
	binary.NativeEndian.PutUint16(h[6:], uint16(netlink.Request))
	binary.NativeEndian.PutUint32(h[8:], seq)
	return b
}

func appendAttribute(b []byte, typ uint16, data []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(nlaHeaderLen+len(data)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func appendUint16(b []byte, typ, v uint16) []byte {
	return appendAttribute(b, typ, []byte{byte(v >> 8), byte(v)})
}

// openNest begins a nested attribute and returns where, for closeNest.
func openNest(b []byte, typ uint16) ([]byte, int) {
	return appendAttribute(b, typ|nlaNested, nil), len(b)
}

func closeNest(b []byte, at int) {
	binary.NativeEndian.PutUint16(b[at:], uint16(len(b)-at))
}
