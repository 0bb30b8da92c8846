package conntrack

import "net/netip"

// tuple is one direction of a flow. zone is CTA_TUPLE_ZONE, 0 where the zone
// covers both directions.
type tuple struct {
	src, dst netip.AddrPort
	zone     uint16
}

// flowKey names one entry of the kernel's table. CTA_ID is not part of it: it is
// not unique, and a GET wants the tuple.
type flowKey struct {
	proto Protocol
	zone  uint16
	orig  tuple
}

// entry is what the kernel says of one flow at one moment.
type entry struct {
	proto       Protocol
	zone        uint16
	orig, reply tuple
	id          uint32
	status      uint32
	// timeout is the remaining life in whole seconds; offloaded entries have none.
	timeout    uint32
	hasTimeout bool
	// state is the protocol's own state. A status-only update carries none, nor
	// does an offloaded entry.
	state    uint8
	hasState bool
	// flags are those of TCP, of the original and the reply direction.
	flags [2]uint8
}

func (e *entry) key() flowKey { return flowKey{proto: e.proto, zone: e.zone, orig: e.orig} }

// Bits of the status (enum ip_conntrack_status).
const (
	statusSeenReply = 1 << 1
	statusAssured   = 1 << 2
	statusOffload   = 1 << 14 // forwarded by a flowtable
	statusHwOffload = 1 << 15 // forwarded by the network card
)

func (e *entry) assured() bool   { return e.status&statusAssured != 0 }
func (e *entry) offloaded() bool { return e.status&(statusOffload|statusHwOffload) != 0 }

// Directions of a flow, as indexes of entry.flags.
const (
	dirOrig  = 0
	dirReply = 1
)

// Flags of one direction of a TCP flow (IP_CT_TCP_FLAG_*).
const (
	flagCloseInit          = 0x04
	flagDataUnacknowledged = 0x10
)

// TCP states (enum tcp_conntrack).
const (
	tcpNone uint8 = iota
	tcpSynSent
	tcpSynRecv
	tcpEstablished
	tcpFinWait
	tcpCloseWait
	tcpLastAck
	tcpTimeWait
	tcpClose
	tcpSynSent2
)

var tcpStateNames = [...]string{
	"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT",
	"LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2",
}

// SCTP states (enum sctp_conntrack). HEARTBEAT_ACKED left the kernel with 6.2.
const (
	sctpNone uint8 = iota
	sctpClosed
	sctpCookieWait
	sctpCookieEchoed
	sctpEstablished
	sctpShutdownSent
	sctpShutdownRecd
	sctpShutdownAckSent
	sctpHeartbeatSent
	sctpHeartbeatAcked
)

var sctpStateNames = [...]string{
	"NONE", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED", "ESTABLISHED",
	"SHUTDOWN_SENT", "SHUTDOWN_RECD", "SHUTDOWN_ACK_SENT", "HEARTBEAT_SENT",
	"HEARTBEAT_ACKED",
}

// stateName returns the kernel's name for a state, or "" where there is none.
func stateName(p Protocol, state uint8, has bool) string {
	if !has {
		return ""
	}
	names := tcpStateNames[:]
	if p == SCTP {
		names = sctpStateNames[:]
	}
	if (p == TCP || p == SCTP) && int(state) < len(names) {
		return names[state]
	}
	return ""
}
