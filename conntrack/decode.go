package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Attribute types of ctnetlink (enum ctattr_*).
const (
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaProtoInfo  = 4
	ctaTimeout    = 7
	ctaID         = 12
	ctaZone       = 18

	ctaTupleIP    = 1
	ctaTupleProto = 2
	ctaTupleZone  = 3

	ctaIPv4Src = 1
	ctaIPv4Dst = 2
	ctaIPv6Src = 3
	ctaIPv6Dst = 4

	ctaProtoNum     = 1
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3

	ctaProtoInfoTCP  = 1
	ctaProtoInfoSCTP = 3

	ctaProtoInfoTCPState      = 1
	ctaProtoInfoTCPFlagsOrig  = 4
	ctaProtoInfoTCPFlagsReply = 5
	ctaProtoInfoSCTPState     = 1
)

const (
	nlmsgHeaderLen = 16
	nfgenmsgLen    = 4
	nlaHeaderLen   = 4
	nlaTypeMask    = 0x3fff
	nlaNested      = 0x8000
)

// attributes walks the netlink attributes in b and calls each with their type and
// payload. A false return ends the walk. It reads nothing outside of b.
func attributes(b []byte, each func(typ uint16, data []byte) (bool, error)) error {
	for len(b) >= nlaHeaderLen {
		length := int(binary.NativeEndian.Uint16(b))
		if length < nlaHeaderLen || length > len(b) {
			return fmt.Errorf("attribute of %d bytes in %d: %w", length, len(b), errMalformed)
		}
		typ := binary.NativeEndian.Uint16(b[2:]) & nlaTypeMask
		more, err := each(typ, b[nlaHeaderLen:length])
		if err != nil || !more {
			return err
		}
		b = b[min(align4(length), len(b)):]
	}
	if len(b) != 0 {
		return fmt.Errorf("%d bytes after the last attribute: %w", len(b), errMalformed)
	}
	return nil
}

func align4(n int) int { return (n + 3) &^ 3 }

// decode reads one flow from the payload of a ctnetlink message (what follows
// the netlink header). As soon as both tuples are known it asks wanted, and
// stops with false where the answer is no, so that a walk of a large table costs
// next to nothing for the flows of others. It allocates nothing. e is
// overwritten.
func (e *entry) decode(payload []byte, wanted func(*entry) bool) (bool, error) {
	*e = entry{}
	if len(payload) < nfgenmsgLen {
		return false, fmt.Errorf("message of %d bytes: %w", len(payload), errMalformed)
	}
	var tuples int
	skipped := false
	b := payload[nfgenmsgLen:]
	err := attributes(b, func(typ uint16, data []byte) (bool, error) {
		var err error
		switch typ {
		case ctaTupleOrig:
			err = e.decodeTuple(&e.orig, data)
			tuples |= 1
		case ctaTupleReply:
			err = e.decodeTuple(&e.reply, data)
			tuples |= 2
		case ctaStatus:
			e.status, err = uint32BE(data)
		case ctaTimeout:
			e.timeout, err = uint32BE(data)
			e.hasTimeout = true
		case ctaID:
			e.id, err = uint32BE(data)
		case ctaZone:
			e.zone, err = uint16BE(data)
		case ctaProtoInfo:
			err = e.decodeProtoInfo(data)
		}
		if err != nil {
			return false, err
		}
		if tuples == 3 && wanted != nil {
			if !wanted(e) {
				skipped = true
				return false, nil
			}
			wanted = nil
		}
		return true, nil
	})
	switch {
	case err != nil:
		return false, err
	case skipped:
		return false, nil
	case tuples != 3:
		return false, fmt.Errorf("flow without both tuples: %w", errMalformed)
	}
	return true, nil
}

func (e *entry) decodeTuple(t *tuple, b []byte) error {
	var src, dst netip.Addr
	var sport, dport uint16
	err := attributes(b, func(typ uint16, data []byte) (bool, error) {
		var err error
		switch typ {
		case ctaTupleIP:
			err = decodeAddresses(&src, &dst, data)
		case ctaTupleProto:
			err = e.decodePorts(&sport, &dport, data)
		case ctaTupleZone:
			t.zone, err = uint16BE(data)
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	if !src.IsValid() || !dst.IsValid() || src.Is4() != dst.Is4() {
		return fmt.Errorf("tuple without two addresses of one family: %w", errMalformed)
	}
	t.src, t.dst = netip.AddrPortFrom(src, sport), netip.AddrPortFrom(dst, dport)
	return nil
}

func decodeAddresses(src, dst *netip.Addr, b []byte) error {
	return attributes(b, func(typ uint16, data []byte) (bool, error) {
		var a *netip.Addr
		size := 4
		switch typ {
		case ctaIPv4Src:
			a = src
		case ctaIPv4Dst:
			a = dst
		case ctaIPv6Src:
			a, size = src, 16
		case ctaIPv6Dst:
			a, size = dst, 16
		default:
			return true, nil
		}
		if len(data) != size {
			return false, fmt.Errorf("address of %d bytes: %w", len(data), errMalformed)
		}
		*a, _ = netip.AddrFromSlice(data)
		return true, nil
	})
}

func (e *entry) decodePorts(sport, dport *uint16, b []byte) error {
	return attributes(b, func(typ uint16, data []byte) (bool, error) {
		var err error
		switch typ {
		case ctaProtoNum:
			if len(data) < 1 {
				return false, fmt.Errorf("empty protocol number: %w", errMalformed)
			}
			e.proto = Protocol(data[0])
		case ctaProtoSrcPort:
			*sport, err = uint16BE(data)
		case ctaProtoDstPort:
			*dport, err = uint16BE(data)
		}
		return err == nil, err
	})
}

func (e *entry) decodeProtoInfo(b []byte) error {
	return attributes(b, func(typ uint16, data []byte) (bool, error) {
		var err error
		switch typ {
		case ctaProtoInfoTCP:
			err = e.decodeTCP(data)
		case ctaProtoInfoSCTP:
			err = attributes(data, func(typ uint16, data []byte) (bool, error) {
				if typ == ctaProtoInfoSCTPState && len(data) > 0 {
					e.state, e.hasState = data[0], true
				}
				return true, nil
			})
		}
		return err == nil, err
	})
}

func (e *entry) decodeTCP(b []byte) error {
	return attributes(b, func(typ uint16, data []byte) (bool, error) {
		if len(data) < 1 {
			return false, fmt.Errorf("empty TCP attribute %d: %w", typ, errMalformed)
		}
		switch typ {
		case ctaProtoInfoTCPState:
			e.state, e.hasState = data[0], true
		case ctaProtoInfoTCPFlagsOrig: // struct nf_ct_tcp_flags { flags, mask }
			e.flags[dirOrig] = data[0]
		case ctaProtoInfoTCPFlagsReply:
			e.flags[dirReply] = data[0]
		}
		return true, nil
	})
}

func uint32BE(b []byte) (uint32, error) {
	if len(b) < 4 {
		return 0, fmt.Errorf("number of %d bytes: %w", len(b), errMalformed)
	}
	return binary.BigEndian.Uint32(b), nil
}

func uint16BE(b []byte) (uint16, error) {
	if len(b) < 2 {
		return 0, fmt.Errorf("number of %d bytes: %w", len(b), errMalformed)
	}
	return binary.BigEndian.Uint16(b), nil
}
