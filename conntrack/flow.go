package conntrack

import (
	"time"
)

// How long a handshake and a datagram keep their session alive.
const (
	openingFor  = 3 * time.Second // SYN_SENT
	synRecvFor  = 5 * time.Second
	datagramFor = 5 * time.Second
)

// flow is one entry of the kernel's table that the reader keeps.
type flow struct {
	entry
	// last is when the last packet came.
	last lastPacket
	// since is when the flow was first seen in its present state, closedAt when it
	// was seen to have ended.
	firstSeen, since, closedAt time.Time
	// young flows announced themselves by an event, so their end will too.
	young bool
	// gone is when the kernel was first seen to have no such entry any more.
	gone time.Time
	// learned is when the latest of what is known was told.
	learned time.Time
	// touched counts what was learned of the flow. An answer to a question that was
	// asked before the latest of it is out of date.
	touched uint64
	// verify asks for a look at the next occasion: what an event said does not fit.
	verify bool
}

// newFlow begins to keep an entry that was seen between asked and answered.
func newFlow(e *entry, l limits, asked, answered time.Time) *flow {
	f := &flow{entry: *e, firstSeen: answered, since: answered, learned: answered}
	f.last.at = answered
	if e.hasTimeout {
		f.last.look(e.timeout, fullLife(e, l), asked, answered)
	}
	if e.proto == TCP && e.state == tcpSynSent && e.hasTimeout {
		// Its first packet came that long ago, or the latest try of it.
		if age := l.tcpSynSent - time.Duration(e.timeout)*time.Second - time.Second; age > 0 {
			f.firstSeen = answered.Add(-age)
		}
	}
	f.noteEnd(answered)
	return f
}

// fullLife returns how long an entry lives after a packet where its remaining
// life tells that this is so, else 0.
func fullLife(e *entry, l limits) time.Duration {
	remaining := time.Duration(e.timeout) * time.Second
	switch {
	case e.proto == TCP && e.state == tcpEstablished:
		if remaining > l.stalled() && remaining <= l.tcpEstablished {
			return l.tcpEstablished
		}
	case e.proto == UDP:
		full := l.udp
		if e.assured() || remaining > l.udp {
			full = l.udpStream
		}
		if remaining <= full {
			return full
		}
	}
	return 0
}

// update takes over what the kernel says of the flow now. It returns true if
// that changed anything a person would call a change.
func (f *flow) update(e *entry, l limits, asked, answered time.Time) bool {
	f.touched++
	f.learned = answered
	changed := !f.gone.IsZero()
	f.gone = time.Time{}
	f.status, f.id = e.status, e.id
	if e.hasState {
		if !f.hasState || f.state != e.state {
			f.since, changed = answered, true
		}
		if f.flags != e.flags {
			changed = true
		}
		f.state, f.hasState, f.flags = e.state, true, e.flags
	}
	if f.hasTimeout = e.hasTimeout; e.hasTimeout {
		f.timeout = e.timeout
		if f.last.look(e.timeout, fullLife(e, l), asked, answered) {
			changed = true
		}
	} else {
		f.last.packet(answered) // nobody counts its packets: any may have come
	}
	f.noteEnd(answered)
	return changed
}

// believeAfter is how long a flow has to be looked at before an estimate from its
// first look is believed: a packet each second would have shown by then.
const believeAfter = 1500 * time.Millisecond

// quiet is how long the flow has had no packet, at the least. Quiet from before the
// first look is an estimate by the kernel's general settings, which a policy for
// single flows may contradict: a datagram session, which ends by being quiet, does
// without it, and others wait a little. Where there is one look only, it is all
// there is.
func (f *flow) quiet(now time.Time, once bool) time.Duration {
	quiet := f.last.quiet()
	if watched := f.last.watched(); !once && (f.proto == UDP || watched < believeAfter) {
		quiet = min(quiet, watched)
	}
	if !f.gone.IsZero() {
		quiet += now.Sub(f.gone) // a packet would have made an entry anew
	}
	return quiet
}

// vanish takes note that the kernel has no such entry any more.
func (f *flow) vanish(now time.Time) {
	f.touched++
	f.learned = now
	if f.gone.IsZero() {
		f.gone = now
	}
}

func (f *flow) noteEnd(now time.Time) {
	if !f.ended() {
		f.closedAt = time.Time{}
	} else if f.closedAt.IsZero() {
		f.closedAt = now
	}
}

// serverDir is the direction in which the server sends: reply, but for the
// entries that a flush turned round.
func (f *flow) serverDir(reversed bool) int {
	if reversed {
		return dirOrig
	}
	return dirReply
}

// closedFirst returns the side whose FIN was seen first.
func (f *flow) closedFirst(reversed bool) Side {
	if f.proto != TCP {
		return NoSide
	}
	server := f.serverDir(reversed)
	byServer := f.flags[server]&flagCloseInit != 0
	byClient := f.flags[1-server]&flagCloseInit != 0
	switch {
	case byServer && !byClient:
		return ServerSide
	case byClient && !byServer:
		return ClientSide
	}
	return NoSide // none, or nobody can tell any more
}

// ended says that the flow was seen to end, by states that both sides brought
// about. It does not depend on who is the server.
func (f *flow) ended() bool {
	if !f.hasState || f.offloaded() {
		return false
	}
	switch f.proto {
	case TCP:
		unacknowledged := (f.flags[dirOrig]|f.flags[dirReply])&flagDataUnacknowledged != 0
		return (f.state == tcpLastAck || f.state == tcpTimeWait) && !unacknowledged || f.state == tcpClose
	case SCTP:
		switch f.state {
		case sctpClosed, sctpShutdownSent, sctpShutdownRecd, sctpShutdownAckSent:
			return true
		}
		return false
	default:
		return false
	}
}

// mayRevive says that an ended entry can go on to serve a new connection without
// an event: a reset one can, where the kernel does not replace it for the SYN
// (nf_conntrack_tcp_packet: neither side's close was seen).
func (f *flow) mayRevive() bool {
	switch f.proto {
	case TCP:
		return !f.young && f.gone.IsZero() && (f.flags[0]|f.flags[1])&flagCloseInit == 0
	case UDP:
		return f.gone.IsZero()
	default:
		return f.gone.IsZero() && !f.young
	}
}

// continuedBy says that an entry of another id is the same connection going on
// after its entry had vanished: it was picked up in the middle.
func (f *flow) continuedBy(e *entry) bool {
	if f.proto != TCP || f.ended() || f.reply != e.reply || !e.hasState {
		return false
	}
	switch e.state {
	case tcpSynSent, tcpSynSent2, tcpSynRecv:
		return false
	case tcpLastAck, tcpTimeWait, tcpClose:
		return !f.gone.IsZero()
	}
	return true
}

// unanswered says that the flow was picked up in its middle, and the other side
// has said nothing since. It may be the last sign of life of a connection that
// ended after its entry had vanished: that was no proof that it lives.
func (f *flow) unanswered() bool {
	return f.proto == TCP && f.hasState && f.state == tcpEstablished &&
		f.status&statusSeenReply == 0 && !f.offloaded()
}

// rules are what one target asks of the judgement.
type rules struct {
	limits
	idleAfter, lostAfter time.Duration
	// once is set where flows are looked at one single time.
	once bool
}

// judge says what the flow is now. A flow that never was a session yields 0.
// reversed means that the server is the original source.
func (f *flow) judge(now time.Time, r rules, reversed bool) State {
	switch f.proto {
	case TCP:
		return f.judgeTCP(now, r, reversed)
	case UDP:
		return f.judgeUDP(now, r)
	case SCTP:
		return f.judgeSCTP(now, r)
	}
	return 0
}

func (f *flow) judgeTCP(now time.Time, r rules, reversed bool) State {
	live := f.liveTCP(now, r, reversed)
	lost := f.gone
	if f.gone.IsZero() && f.unanswered() {
		lost = f.firstSeen
	}
	if lost.IsZero() || live == Over || live == 0 {
		return live
	}
	switch {
	case f.hasState && (f.state == tcpSynSent || f.state == tcpSynSent2):
		return 0
	case f.hasState && f.state == tcpSynRecv:
		return live // until its time is over; then it never was a session
	case r.lostAfter > 0 && now.Sub(lost) >= r.lostAfter:
		return Over
	}
	return Lost
}

// liveTCP judges a TCP flow by its last known state.
func (f *flow) liveTCP(now time.Time, r rules, reversed bool) State {
	if !f.hasState || f.offloaded() {
		return Open // nobody follows its state
	}
	switch f.state {
	case tcpSynSent, tcpSynSent2:
		if now.Sub(f.firstSeen) < openingFor {
			return Opening
		}
		return 0
	case tcpSynRecv:
		if now.Sub(f.since) < synRecvFor {
			return Open
		}
		return 0
	case tcpEstablished:
		if f.idleTCP(now, r) {
			return Idle
		}
		return Open
	case tcpFinWait, tcpCloseWait:
		if f.closedFirst(reversed) == ServerSide &&
			f.flags[f.serverDir(reversed)]&flagDataUnacknowledged == 0 {
			return Over
		}
		return Open
	case tcpLastAck, tcpTimeWait:
		// Both have closed, but what the server sent last may still be on its way and
		// be sent again: any acknowledgement, of older data too, makes TIME_WAIT.
		if f.gone.IsZero() && f.flags[f.serverDir(reversed)]&flagDataUnacknowledged != 0 {
			return Open
		}
		return Over
	case tcpClose:
		return Over
	}
	return Open // NONE, or a state of a newer kernel
}

// idleTCP: no packet for long enough, and nothing that still has to be
// delivered. A download whose reader pauses has packets rarely, but somebody
// would miss it.
func (f *flow) idleTCP(now time.Time, r rules) bool {
	if r.idleAfter <= 0 || !f.hasTimeout || f.quiet(now, r.once) < r.idleAfter {
		return false
	}
	if r.tcpEstablished > r.stalled() {
		// An orderly last packet gives more than any of the caps. Whole seconds are
		// told, so up to one more second is left, and the look takes its time too.
		given := f.last.latest.Sub(f.last.at)
		return given > r.stalled()+2*time.Second
	}
	return (f.flags[dirOrig]|f.flags[dirReply])&flagDataUnacknowledged == 0
}

func (f *flow) judgeUDP(now time.Time, r rules) State {
	switch quiet := f.quiet(now, r.once); {
	case quiet >= datagramFor:
		return Over
	case r.idleAfter > 0 && quiet >= r.idleAfter:
		return Idle
	}
	return Open
}

func (f *flow) judgeSCTP(now time.Time, r rules) State {
	if !f.gone.IsZero() {
		return Over
	}
	if !f.hasState || f.offloaded() {
		return Open
	}
	switch f.state {
	case sctpCookieWait:
		if now.Sub(f.firstSeen) < openingFor {
			return Opening
		}
		return 0
	case sctpClosed, sctpShutdownSent, sctpShutdownRecd, sctpShutdownAckSent:
		return Over
	case sctpEstablished, sctpHeartbeatSent, sctpHeartbeatAcked:
		if r.idleAfter > 0 && f.hasTimeout && f.quiet(now, r.once) >= r.idleAfter {
			return Idle
		}
	}
	return Open // also NONE: an entry without a state
}
