package sockdiag

import (
	"encoding/binary"
	"time"
)

// Traffic is what the kernel counts of one connection, from struct tcp_info. All
// of it was read under the socket's lock, so its parts are of one moment; the
// queues of a Socket are not.
type Traffic struct {
	// Known is false where the kernel did not tell. Nothing else then means anything.
	Known bool
	// SinceSent and SinceReceived are how long ago data was last sent and received,
	// in the kernel's ticks of some milliseconds, sent as whole milliseconds. They
	// mean nothing while no segment with data has gone that way.
	SinceSent, SinceReceived time.Duration
	// Received are bytes received in order. Sent are bytes sent, retransmissions
	// included; Retransmitted are those.
	Received, Sent, Retransmitted uint64
	// Acknowledged are bytes that the peer has acknowledged; before the first it is
	// 1 for the handshake.
	Acknowledged uint64
	// Unsent are bytes that the application has written and that were never sent.
	Unsent uint32
	// Unacknowledged are segments sent that no acknowledgement has come for.
	Unacknowledged uint32
	// Segments counts all segments sent, DataSent and DataReceived those with data.
	Segments, DataSent, DataReceived uint32
	// Retransmits counts segments sent again.
	Retransmits uint32
	// OutOfOrder counts segments with data that came before one that belongs ahead of
	// them. Only Linux 5.4 and newer tell; it is 0 elsewhere.
	OutOfOrder uint32
	// RoundTrip is the smoothed time of a round trip.
	RoundTrip time.Duration
	// SegmentSize is how many bytes a segment is sent with at the most.
	SegmentSize uint32
}

// Places in struct tcp_info (linux/tcp.h). It only ever grows; what is read here is
// there since Linux 4.19, but for infoOutOfOrderAt.
const (
	infoSndMSSAt        = 16
	infoUnackedAt       = 24
	infoLastDataSentAt  = 44
	infoLastDataRecvAt  = 52
	infoRTTAt           = 68
	infoTotalRetransAt  = 100
	infoBytesAckedAt    = 120
	infoBytesReceivedAt = 128
	infoSegsOutAt       = 136
	infoNotsentAt       = 144
	infoDataSegsInAt    = 152
	infoDataSegsOutAt   = 156
	infoBytesSentAt     = 200
	infoBytesRetransAt  = 208
	infoSize            = 216
	infoOutOfOrderAt    = 224
)

// attributeInfo is INET_DIAG_INFO, the attribute that holds a struct tcp_info.
const attributeInfo = 2

// decodeTraffic finds the struct tcp_info among the attributes that follow the
// fixed part of an answer. It is not known where there is none, or one of a kernel
// that is too old. It allocates nothing and keeps nothing of b.
func decodeTraffic(b []byte) Traffic {
	const header, alignment = 4, 4
	for len(b) >= header {
		length := int(binary.NativeEndian.Uint16(b))
		kind := binary.NativeEndian.Uint16(b[2:])
		if length < header || length > len(b) {
			return Traffic{}
		}
		if kind == attributeInfo {
			return readTraffic(b[header:length])
		}
		b = b[min(len(b), (length+alignment-1)/alignment*alignment):]
	}
	return Traffic{}
}

func readTraffic(b []byte) Traffic {
	if len(b) < infoSize {
		return Traffic{}
	}
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(b[at:]) }
	t := Traffic{
		Known:          true,
		SinceSent:      time.Duration(u32(infoLastDataSentAt)) * time.Millisecond,
		SinceReceived:  time.Duration(u32(infoLastDataRecvAt)) * time.Millisecond,
		Received:       u64(infoBytesReceivedAt),
		Sent:           u64(infoBytesSentAt),
		Retransmitted:  u64(infoBytesRetransAt),
		Acknowledged:   u64(infoBytesAckedAt),
		Unsent:         u32(infoNotsentAt),
		Unacknowledged: u32(infoUnackedAt),
		Segments:       u32(infoSegsOutAt),
		DataSent:       u32(infoDataSegsOutAt),
		DataReceived:   u32(infoDataSegsInAt),
		Retransmits:    u32(infoTotalRetransAt),
		RoundTrip:      time.Duration(u32(infoRTTAt)) * time.Microsecond,
		SegmentSize:    u32(infoSndMSSAt),
	}
	if len(b) >= infoOutOfOrderAt+4 {
		t.OutOfOrder = u32(infoOutOfOrderAt)
	}
	return t
}
