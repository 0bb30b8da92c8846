package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// The parts of struct inet_diag_msg (linux/inet_diag.h). Ports and addresses are
// big endian, everything else is in host order. Attributes may follow.
const (
	familyAt    = 0
	stateAt     = 1
	localPortAt = 4
	peerPortAt  = 6
	localAddrAt = 8
	peerAddrAt  = 24
	recvQueueAt = 56
	sendQueueAt = 60
	inodeAt     = 68
	messageSize = 72
)

// The kernel's address families, which have other numbers on other systems. Both are
// asked for, because a dual-stack listener's connections are IPv6 sockets even where
// the peer speaks IPv4.
const (
	familyIPv4 = 2
	familyIPv6 = 10
)

var errShort = errors.New("message is shorter than struct inet_diag_msg")

// decode reads the fixed part of one answer. It allocates nothing and keeps
// nothing of b.
func decode(b []byte) (Socket, error) {
	if len(b) < messageSize {
		return Socket{}, fmt.Errorf("%d bytes: %w", len(b), errShort)
	}
	local, err := decodeAddr(b[familyAt], b[localAddrAt:])
	if err != nil {
		return Socket{}, err
	}
	peer, err := decodeAddr(b[familyAt], b[peerAddrAt:])
	if err != nil {
		return Socket{}, err
	}
	return Socket{
		Local:     netip.AddrPortFrom(local, binary.BigEndian.Uint16(b[localPortAt:])),
		Peer:      netip.AddrPortFrom(peer, binary.BigEndian.Uint16(b[peerPortAt:])),
		State:     State(b[stateAt]),
		RecvQueue: binary.NativeEndian.Uint32(b[recvQueueAt:]),
		SendQueue: binary.NativeEndian.Uint32(b[sendQueueAt:]),
		Inode:     binary.NativeEndian.Uint32(b[inodeAt:]),
	}, nil
}

// answer is one socket as the kernel tells of it, with its traffic where that was
// asked for.
type answer struct {
	Socket
	traffic Traffic
	asked   bool
}

// decodeAnswer reads one answer and, where traffic is set, what follows its fixed
// part. It keeps nothing of b.
func decodeAnswer(b []byte, traffic bool) (answer, error) {
	s, err := decode(b)
	if err != nil || !traffic {
		return answer{Socket: s}, err
	}
	return answer{s, decodeTraffic(b[messageSize:]), true}, nil
}

func decodeAddr(family uint8, b []byte) (netip.Addr, error) {
	switch family {
	case familyIPv4:
		return netip.AddrFrom4([4]byte(b)), nil
	case familyIPv6:
		return netip.AddrFrom16([16]byte(b)).Unmap(), nil
	}
	return netip.Addr{}, fmt.Errorf("address family %d is neither IPv4 nor IPv6", family)
}

// encodeRequest returns struct inet_diag_req_v2 that asks for all TCP sockets of
// one family in the given states, with their struct tcp_info where traffic is set.
func encodeRequest(family uint8, traffic bool, states ...State) []byte {
	const (
		protocolAt  = 1
		extensionAt = 2
		statesAt    = 4
		requestSize = 56
		tcp         = 6
	)
	b := make([]byte, requestSize)
	b[familyAt] = family
	b[protocolAt] = tcp
	b[extensionAt] = extensions(traffic)
	binary.NativeEndian.PutUint32(b[statesAt:], mask(states))
	return b
}

// encodeOlder returns struct inet_diag_req, which asks for the same of all families.
func encodeOlder(traffic bool, states ...State) []byte {
	const (
		extensionAt = 3
		statesAt    = 52
		requestSize = 60
	)
	b := make([]byte, requestSize)
	b[extensionAt] = extensions(traffic)
	binary.NativeEndian.PutUint32(b[statesAt:], mask(states))
	return b
}

func extensions(traffic bool) uint8 {
	if traffic {
		return 1 << (attributeInfo - 1)
	}
	return 0
}

func mask(states []State) (all uint32) {
	for _, s := range states {
		all |= 1 << s
	}
	return all
}
