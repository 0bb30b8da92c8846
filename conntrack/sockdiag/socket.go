package sockdiag

import (
	"fmt"
	"net/netip"
)

// Socket is one TCP socket at one moment. Addresses are plain: IPv4 on a
// dual-stack socket is IPv4, not IPv4-mapped.
type Socket struct {
	Local, Peer netip.AddrPort
	State       State
	// RecvQueue is what the application has not read, SendQueue what the peer has
	// not acknowledged, both in bytes. A FIN counts as one byte of either.
	RecvQueue, SendQueue uint32
	// Inode names the socket among file descriptors; 0 once no process has it.
	Inode uint32
}

// State is the kernel's TCP state.
type State uint8

// The kernel's TCP states, by its numbers.
const (
	Established State = iota + 1
	SynSent
	SynRecv
	FinWait1
	FinWait2
	TimeWait
	Close
	CloseWait
	LastAck
	Listen
	Closing
)

var stateNames = [...]string{
	Established: "ESTABLISHED",
	SynSent:     "SYN_SENT",
	SynRecv:     "SYN_RECV",
	FinWait1:    "FIN_WAIT1",
	FinWait2:    "FIN_WAIT2",
	TimeWait:    "TIME_WAIT",
	Close:       "CLOSE",
	CloseWait:   "CLOSE_WAIT",
	LastAck:     "LAST_ACK",
	Listen:      "LISTEN",
	Closing:     "CLOSING",
}

// String returns the kernel's name.
func (s State) String() string {
	if s >= Established && int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MarshalText returns the same word as String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Live says whether a connection in this socket can still lose data that
// belongs to it. Once the application has closed, only data that the peer has
// not acknowledged is left to lose; the FIN alone is one byte of the queue.
func (s Socket) Live() bool {
	switch s.State {
	case Established, CloseWait:
		return true
	case FinWait1, Closing, LastAck:
		return s.SendQueue > 1
	default:
		return false
	}
}
