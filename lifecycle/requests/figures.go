package requests

import (
	"net/netip"
	"time"
)

// Figures are those of one connection at one look. All but the queues have to be of
// one moment: they prove an order, the queues can only contradict.
type Figures struct {
	Local, Peer netip.AddrPort
	// Established is false as soon as one side has closed.
	Established bool
	// Known is false where the kernel did not tell what follows but the queues.
	Known bool
	// ReceiveQueue and SendQueue are bytes that the server has not read, and that the
	// client has not acknowledged.
	ReceiveQueue, SendQueue uint32
	// SinceSent and SinceReceived are how long ago data was last sent and received,
	// in the kernel's ticks.
	SinceSent, SinceReceived time.Duration
	// Received are bytes received in order, Written those that the server has
	// written, sent or not, each once.
	Received, Written uint64
	// Acknowledged are bytes that the client has acknowledged.
	Acknowledged uint64
	// Unsent are bytes never sent, Unacknowledged segments that no acknowledgement
	// has come for.
	Unsent, Unacknowledged uint32
	// DataSent and DataReceived count segments with data, Pure those sent without,
	// Retransmits those sent again.
	DataSent, DataReceived, Pure, Retransmits uint32
	// OutOfOrder counts segments with data that came while one before them was missing;
	// 0 where the kernel does not tell.
	OutOfOrder uint32
	// RoundTrip is the smoothed time of a round trip.
	RoundTrip time.Duration
	// SegmentSize is how many bytes a segment is sent with at the most; 0 is unknown.
	SegmentSize uint32
}

// onItsWay says that something of the server's has not arrived.
func (f *Figures) onItsWay() bool { return f.Unacknowledged > 0 || f.Unsent > 0 }

// heard says that the client has said something: a probe alone only counts in
// DataReceived, a FIN alone in Received.
func (f *Figures) heard() bool { return f.Received > 0 && f.DataReceived > 0 }

// change is what moved between two looks at one connection.
type change struct {
	in, out, acknowledged, retransmitted bool
	// ahead is set if a part came of something whose beginning had not come by then.
	ahead             bool
	received, written uint64
	// segments are those with data that came in, sent those that went out.
	segments, sent uint32
}

// since is what moved. A segment that brings nothing new does not: it has come before,
// or is a keep-alive probe with an octet of garbage (RFC 1122, 4.2.3.6). The kernel
// counts it in DataReceived, but neither in Received nor in SinceReceived.
func (f *Figures) since(before *Figures) change {
	return change{
		in:            f.Received != before.Received,
		out:           f.Written != before.Written || f.DataSent != before.DataSent,
		acknowledged:  f.Acknowledged != before.Acknowledged,
		retransmitted: f.Retransmits != before.Retransmits,
		ahead:         f.OutOfOrder != before.OutOfOrder,
		received:      f.Received - before.Received,
		written:       f.Written - before.Written,
		segments:      f.DataReceived - before.DataReceived,
		sent:          f.DataSent - before.DataSent,
	}
}

// fillsSegments says that no segment of what was sent is less than an answer: the others
// could not have held the rest.
func (f *Figures) fillsSegments(ch change) bool {
	others := uint64(ch.sent-1) * uint64(f.SegmentSize)
	return f.SegmentSize > 0 && f.Unsent == 0 && ch.written >= others+leastAnswer
}

func (c change) moved() bool { return c.in || c.out }

// follows says whether these can be later figures of the same connection: all
// counts only grow. Another one can have the same addresses by now.
func (f *Figures) follows(before *Figures) bool {
	return f.Received >= before.Received && f.Written >= before.Written &&
		f.DataReceived >= before.DataReceived && f.DataSent >= before.DataSent
}

// silent is how long nothing was sent or received, as far as the kernel tells.
func (f *Figures) silent() time.Duration {
	switch {
	case !f.heard() && f.DataSent == 0:
		return 0
	case !f.heard():
		return f.SinceSent
	case f.DataSent == 0:
		return f.SinceReceived
	}
	return min(f.SinceSent, f.SinceReceived)
}
