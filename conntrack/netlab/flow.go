//go:build linux

package netlab

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Status bits of an entry that a Flow may have.
const (
	StatusSeenReply uint32 = 1 << 1
	StatusAssured   uint32 = 1 << 2
	// StatusUnreplied is the status of an entry whose reply was never seen.
	StatusUnreplied uint32 = 1 << 3
)

// TCP states of an entry.
const (
	TCPSynSent     uint8 = 1
	TCPSynRecv     uint8 = 2
	TCPEstablished uint8 = 3
	TCPFinWait     uint8 = 4
	TCPCloseWait   uint8 = 5
	TCPLastAck     uint8 = 6
	TCPTimeWait    uint8 = 7
	TCPClose       uint8 = 8
)

// Tuple is one direction of a flow.
type Tuple struct {
	Src, Dst netip.AddrPort
}

// Reversed is the same flow seen from the other side.
func (t Tuple) Reversed() Tuple { return Tuple{Src: t.Dst, Dst: t.Src} }

// Flow is an entry of the connection tracking table as Fill makes it.
type Flow struct {
	// Protocol is an IP protocol number with ports.
	Protocol uint8
	// Orig is what the first packet had. Reply is taken as it is: nothing is
	// translated. A zero Reply is Orig reversed.
	Orig, Reply Tuple
	// Status is StatusSeenReply and StatusAssured unless set.
	Status uint32
	// TCPState is TCPEstablished unless set. TCPFlags are those of the original
	// and the reply direction; 0x04 marks the side that closed first.
	TCPState uint8
	TCPFlags [2]uint8
	// SCTPState is 4, established, unless set.
	SCTPState uint8
	// Timeout is the entry's remaining life in seconds, 86400 unless set.
	Timeout uint32
	Zone    uint16
}

// Attribute types and states of ctnetlink that are not in package unix.
const (
	ctaTupleOrig     = 1
	ctaTupleReply    = 2
	ctaStatus        = 3
	ctaProtoinfo     = 4
	ctaTimeout       = 7
	ctaZone          = 18
	ctaTupleIP       = 1
	ctaTupleProto    = 2
	ctaProtoinfoTCP  = 1
	ctaProtoinfoSCTP = 3
	sctpEstablished  = 4
	// tcpBeLiberal lets packets of any sequence number through, which are the
	// only ones that an entry from nowhere can see.
	tcpBeLiberal = 0x08
)

// encode appends the message that makes the entry.
func (f Flow) encode(e *encoder) error {
	if f.Reply == (Tuple{}) {
		f.Reply = f.Orig.Reversed()
	}
	e.begin(ipctnlMsgNew, unix.NLM_F_REQUEST|unix.NLM_F_CREATE|unix.NLM_F_EXCL, family(f.Orig.Src.Addr()))
	if err := e.tuple(ctaTupleOrig, f.Protocol, f.Orig); err != nil {
		return err
	}
	if err := e.tuple(ctaTupleReply, f.Protocol, f.Reply); err != nil {
		return err
	}
	e.zone(f.Zone)
	e.u32(ctaStatus, or(f.Status, StatusSeenReply|StatusAssured)|StatusUnreplied)
	e.u32(ctaTimeout, or(f.Timeout, 86400))
	switch f.Protocol {
	case unix.IPPROTO_TCP:
		info, tcp := e.open(ctaProtoinfo), e.open(ctaProtoinfoTCP)
		e.attr(1, or(f.TCPState, TCPEstablished))
		e.attr(4, f.TCPFlags[0]|tcpBeLiberal, 0xff)
		e.attr(5, f.TCPFlags[1]|tcpBeLiberal, 0xff)
		e.close(tcp)
		e.close(info)
	case unix.IPPROTO_SCTP:
		info, sctp := e.open(ctaProtoinfo), e.open(ctaProtoinfoSCTP)
		e.attr(1, or(f.SCTPState, sctpEstablished))
		e.u32(2, 1)
		e.u32(3, 1)
		e.close(sctp)
		e.close(info)
	}
	e.end()
	return nil
}

// encodeDelete appends the message that removes the entry.
func (f Flow) encodeDelete(e *encoder) error {
	e.begin(ipctnlMsgDelete, unix.NLM_F_REQUEST, family(f.Orig.Src.Addr()))
	if err := e.tuple(ctaTupleOrig, f.Protocol, f.Orig); err != nil {
		return err
	}
	e.zone(f.Zone)
	e.end()
	return nil
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Messages of ctnetlink.
const (
	ipctnlMsgNew    = 0
	ipctnlMsgDelete = 2
)

// encoder appends netlink messages of ctnetlink to one buffer.
type encoder struct {
	b     []byte
	start int
	seq   uint32
}

// begin starts a message.
func (e *encoder) begin(kind, flags uint16, family uint8) {
	e.start = len(e.b)
	e.seq++
	e.b = append(e.b, make([]byte, unix.NLMSG_HDRLEN)...)
	h := e.b[e.start:]
	binary.NativeEndian.PutUint16(h[4:], unix.NFNL_SUBSYS_CTNETLINK<<8|kind)
	binary.NativeEndian.PutUint16(h[6:], flags)
	binary.NativeEndian.PutUint32(h[8:], e.seq)
	e.b = append(e.b, family, unix.NFNETLINK_V0, 0, 0)
}

// end finishes it.
func (e *encoder) end() {
	binary.NativeEndian.PutUint32(e.b[e.start:], uint32(len(e.b)-e.start))
}

// acknowledge asks for an answer to the last message.
func (e *encoder) acknowledge() {
	h := e.b[e.start:]
	binary.NativeEndian.PutUint16(h[6:], binary.NativeEndian.Uint16(h[6:])|unix.NLM_F_ACK)
}

// open starts a nested attribute and returns where.
func (e *encoder) open(kind uint16) int {
	at := len(e.b)
	e.b = append(e.b, 0, 0, 0, 0)
	binary.NativeEndian.PutUint16(e.b[at+2:], kind|unix.NLA_F_NESTED)
	return at
}

func (e *encoder) close(at int) { binary.NativeEndian.PutUint16(e.b[at:], uint16(len(e.b)-at)) }

// attr appends an attribute, padded.
func (e *encoder) attr(kind uint16, value ...byte) {
	e.b = binary.NativeEndian.AppendUint16(e.b, uint16(4+len(value)))
	e.b = binary.NativeEndian.AppendUint16(e.b, kind)
	e.b = append(e.b, value...)
	for len(e.b)%4 != 0 {
		e.b = append(e.b, 0)
	}
}

func (e *encoder) u16(kind, v uint16) { e.attr(kind, byte(v>>8), byte(v)) }

func (e *encoder) u32(kind uint16, v uint32) {
	e.attr(kind, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

func (e *encoder) zone(z uint16) {
	if z != 0 {
		e.u16(ctaZone, z)
	}
}

// tuple appends one direction. Both addresses must be of one family.
func (e *encoder) tuple(kind uint16, proto uint8, t Tuple) error {
	src, dst := t.Src.Addr(), t.Dst.Addr()
	if !src.IsValid() || !dst.IsValid() || src.Is4() != dst.Is4() {
		return fmt.Errorf("flow from %s to %s: two addresses of one family are needed", t.Src, t.Dst)
	}
	tuple := e.open(kind)
	ip := e.open(ctaTupleIP)
	if src.Is4() {
		a, b := src.As4(), dst.As4()
		e.attr(1, a[:]...)
		e.attr(2, b[:]...)
	} else {
		a, b := src.As16(), dst.As16()
		e.attr(3, a[:]...)
		e.attr(4, b[:]...)
	}
	e.close(ip)
	ports := e.open(ctaTupleProto)
	e.attr(1, proto)
	e.u16(2, t.Src.Port())
	e.u16(3, t.Dst.Port())
	e.close(ports)
	e.close(tuple)
	return nil
}
