package conntrack

import "time"

// Counts are a target's sessions at one moment. Open, Idle and Lost are
// disjoint.
type Counts struct {
	// Known is false while no snapshot is in step with the kernel: before the
	// first one, after lost events, after a resize of the table. The other
	// figures are then what was last known, and a zero among them means nothing.
	Known bool
	// Open, Idle and Lost count sessions in these states.
	Open, Idle, Lost int
	// Held counts those of Open that only a socket of the server still shows, by the
	// last report: another one tells of their end.
	Held int
	// Opening counts handshakes younger than 3 s, of TCP and SCTP.
	Opening int
	// Active counts those of Open and Lost with a packet in the last 5 s or of
	// unknown quiet; the rest of them are quiet.
	Active int
	// Peak is the most that ever blocked at one time in this watch.
	Peak int
	// New counts the sessions that began after the watch's first snapshot, and those
	// that announced themselves before it.
	New int
	// LastNew is when the latest of them was seen; zero if there is none.
	LastNew time.Time
	// Source is FromSockets as soon as a socket was found that conntrack never
	// knew in two reports.
	Source Source
	// ReportsPending is true while sockets of the last report could still turn
	// out to be unknown to conntrack: another report is needed to tell.
	ReportsPending bool
}

// Blocking is what a release has to wait for: open and lost sessions.
func (c Counts) Blocking() int { return c.Open + c.Lost }
