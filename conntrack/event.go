package conntrack

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
)

// eventKind is what a message of the event groups announces.
type eventKind uint8

const (
	eventNew eventKind = iota + 1
	eventUpdate
	eventDestroy
)

// Message types of ctnetlink, with the subsystem in the high byte
// (NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_*).
const (
	msgNew    netlink.HeaderType = 0x0100
	msgGet    netlink.HeaderType = 0x0101
	msgDelete netlink.HeaderType = 0x0102
)

// message is one netlink message, still in the receive buffer.
type message struct {
	typ     netlink.HeaderType
	flags   netlink.HeaderFlags
	seq     uint32
	payload []byte
}

// messages walks the netlink messages of one datagram.
func messages(b []byte, each func(message) error) error {
	for len(b) >= nlmsgHeaderLen {
		length := int(binary.NativeEndian.Uint32(b))
		if length < nlmsgHeaderLen || length > len(b) {
			return fmt.Errorf("netlink message of %d bytes in %d: %w", length, len(b), errMalformed)
		}
		m := message{
			typ:     netlink.HeaderType(binary.NativeEndian.Uint16(b[4:])),
			flags:   netlink.HeaderFlags(binary.NativeEndian.Uint16(b[6:])),
			seq:     binary.NativeEndian.Uint32(b[8:]),
			payload: b[nlmsgHeaderLen:length],
		}
		if err := each(m); err != nil {
			return err
		}
		b = b[min(align4(length), len(b)):]
	}
	if len(b) != 0 {
		return fmt.Errorf("%d bytes after the last netlink message: %w", len(b), errMalformed)
	}
	return nil
}

// decodeEvent reads one message of the event groups into e. It uses the decoder
// of the walk and not that of ti-mo/conntrack, which refuses a whole message for one
// attribute that it does not know: a newer kernel would turn every event into
// "unknown".
func decodeEvent(m message, e *entry) (eventKind, error) {
	var kind eventKind
	switch {
	case m.typ == msgNew && m.flags&(netlink.Create|netlink.Excl) != 0:
		kind = eventNew
	case m.typ == msgNew:
		kind = eventUpdate
	case m.typ == msgDelete:
		kind = eventDestroy
	default:
		return 0, fmt.Errorf("event of type %#x: %w", uint16(m.typ), errMalformed)
	}
	if _, err := e.decode(m.payload, nil); err != nil {
		return 0, fmt.Errorf("decode event: %w", err)
	}
	return kind, nil
}
