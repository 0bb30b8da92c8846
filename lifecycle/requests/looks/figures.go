package looks

import (
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle/requests"
)

// Figures are what a socket and its traffic say for the classifier.
func Figures(s sockdiag.Socket, t sockdiag.Traffic) requests.Figures {
	return requests.Figures{
		Local: s.Local, Peer: s.Peer, Established: s.State == sockdiag.Established, Known: t.Known,
		ReceiveQueue: s.RecvQueue, SendQueue: s.SendQueue,
		SinceSent: t.SinceSent, SinceReceived: t.SinceReceived,
		Received: t.Received, Written: t.Sent - t.Retransmitted + uint64(t.Unsent), Acknowledged: t.Acknowledged,
		Unsent: t.Unsent, Unacknowledged: t.Unacknowledged,
		DataSent: t.DataSent, DataReceived: t.DataReceived, Pure: t.Segments - t.DataSent,
		Retransmits: t.Retransmits, OutOfOrder: t.OutOfOrder, RoundTrip: t.RoundTrip,
		SegmentSize: t.SegmentSize,
	}
}
