package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Direction says which flows of an address are asked for.
type Direction uint8

// The directions of a Target. The zero value is Inbound.
const (
	// Inbound flows have their server side at the address.
	Inbound Direction = iota
	// Outbound flows have their client side at the address.
	Outbound
	// Both is Inbound and Outbound.
	Both
)

var directionNames = [...]string{Inbound: "inbound", Outbound: "outbound", Both: "both"}

// String returns the word that ParseDirection reads.
func (d Direction) String() string {
	if int(d) < len(directionNames) {
		return directionNames[d]
	}
	return fmt.Sprintf("direction %d", uint8(d))
}

// ParseDirection reads inbound, outbound or both.
func ParseDirection(s string) (Direction, error) {
	if i := slices.Index(directionNames[:], s); i >= 0 {
		return Direction(i), nil
	}
	return 0, fmt.Errorf("unknown direction %q: use inbound, outbound or both", s)
}

func (d Direction) inbound() bool  { return d != Outbound }
func (d Direction) outbound() bool { return d != Inbound }

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols whose sessions have a known end.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the word that ParseProtocol reads, or the number.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// MarshalText returns the word that ParseProtocol reads.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// ParseProtocol reads tcp, udp or sctp in any case.
func ParseProtocol(s string) (Protocol, error) {
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		if strings.EqualFold(s, p.String()) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("unknown protocol %q: use tcp, udp or sctp", s)
}

// Target says whose sessions are asked for, and which rules judge them.
type Target struct {
	// Addresses are the pod's addresses, IPv4 or IPv6, at least one.
	Addresses []netip.Addr
	// Ports are the served ports: the server's port in either direction.
	// Empty means every port, and then a flow that a flush turned round is
	// known only if it was a session before.
	Ports []uint16
	// Direction is Inbound unless set.
	Direction Direction
	// Protocols is TCP and UDP unless set; TCP where only sockets can tell.
	Protocols []Protocol
	// IdleAfter makes an established session without a packet for this long
	// idle, so that it does not block. 0 is off.
	IdleAfter time.Duration
	// LostAfter ends a lost session this long after its entry vanished. 0 is off:
	// a lost session blocks until it is seen again or a socket look ends it.
	LostAfter time.Duration
	// SocketsReported says that the caller reports the server's own sockets
	// (Watch.Report), which then decide with conntrack: nothing is known before the
	// first report, and a network namespace that tracks nothing is no error unless
	// more than TCP is asked for.
	SocketsReported bool
	// ProbedFrom are the node's own addresses and ProbedPorts the ports of the pod
	// that a kubelet probes. A session from one of them straight to one of these
	// ports, without translation, counts while it is open, but is not new.
	ProbedFrom  []netip.Addr
	ProbedPorts []uint16
}

// Validate returns all that is wrong with the target, joined, or nil.
func (t Target) Validate() error {
	var errs []error
	if len(t.Addresses) == 0 {
		errs = append(errs, errors.New("no address: name at least one"))
	}
	for _, a := range t.Addresses {
		switch {
		case !a.IsValid():
			errs = append(errs, errors.New("an address is empty"))
		case a.IsUnspecified():
			errs = append(errs, fmt.Errorf("address %s means every address: name the pod's own", a))
		case a.IsMulticast():
			errs = append(errs, fmt.Errorf("address %s is multicast: no session has it as its server", a))
		}
	}
	if slices.Contains(t.Ports, 0) {
		errs = append(errs, errors.New("port 0 is out of range: use 1 to 65535"))
	}
	if int(t.Direction) >= len(directionNames) {
		errs = append(errs, fmt.Errorf("unknown %s", t.Direction))
	}
	for _, p := range t.Protocols {
		if p != TCP && p != UDP && p != SCTP {
			errs = append(errs, fmt.Errorf("%s has no sessions: use tcp, udp or sctp", p))
		}
	}
	if t.IdleAfter < 0 {
		errs = append(errs, fmt.Errorf("idle-after %s is negative", t.IdleAfter))
	}
	if t.LostAfter < 0 {
		errs = append(errs, fmt.Errorf("lost-after %s is negative", t.LostAfter))
	}
	return errors.Join(errs...)
}

// normalized returns the target with defaults filled in and addresses in the
// form in which the kernel reports them (IPv4, never IPv4-mapped, no scope).
func (t Target) normalized() Target {
	addrs := make([]netip.Addr, 0, len(t.Addresses))
	for _, a := range t.Addresses {
		if a = a.Unmap().WithZone(""); !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	t.Addresses = addrs
	t.Ports = slices.Clone(t.Ports)
	t.ProbedPorts = slices.Clone(t.ProbedPorts)
	t.ProbedFrom = slices.Clone(t.ProbedFrom)
	for i, a := range t.ProbedFrom {
		t.ProbedFrom[i] = a.Unmap().WithZone("")
	}
	if len(t.Protocols) == 0 {
		t.Protocols = []Protocol{TCP, UDP}
	}
	return t
}
