package conntrack

import (
	"fmt"
	"testing"
	"time"
)

// usualLimits are the kernel's own defaults.
var usualLimits = limits{
	tcpEstablished: 5 * 24 * time.Hour, tcpUnacknowledged: 300 * time.Second,
	tcpMaxRetrans: 300 * time.Second, tcpClose: 10 * time.Second, tcpTimeWait: 120 * time.Second,
	udp: 30 * time.Second, udpStream: 120 * time.Second,
	sctpEstablished: 210 * time.Second, events: 2,
}

var usualRules = rules{limits: usualLimits}

// inTCP is a TCP flow that came into a state at epoch. The flags are those of the
// client and the server.
func inTCP(state, client, server uint8, reversed bool) *flow {
	e := entry{
		proto: TCP, status: statusSeenReply, state: state, hasState: true,
		flags: [2]uint8{client, server}, timeout: 100, hasTimeout: true,
	}
	if reversed {
		e.flags = [2]uint8{server, client}
	}
	return newFlow(&e, usualLimits, epoch, epoch)
}

func TestJudgeTCP(t *testing.T) {
	const (
		fin   = 0x20 | 0x03 | flagCloseInit // closed first
		unack = flagDataUnacknowledged
		none  = 0x23
	)
	for _, tt := range []struct {
		state          uint8
		client, server uint8
		first          Side
		live, gone     State
	}{
		{tcpNone, none, none, NoSide, Open, Lost},
		{tcpSynSent, 0x03, 0, NoSide, Opening, 0},
		{tcpSynSent2, 0x03, 0x03, NoSide, Opening, 0},
		{tcpSynRecv, 0x03, 0x23, NoSide, Open, Open},
		{tcpEstablished, none, none, NoSide, Open, Lost},
		{tcpEstablished, none, none | unack, NoSide, Open, Lost},

		{tcpFinWait, fin, none, ClientSide, Open, Lost},
		{tcpFinWait, fin | unack, none, ClientSide, Open, Lost},
		{tcpFinWait, fin, none | unack, ClientSide, Open, Lost},
		{tcpCloseWait, fin, none, ClientSide, Open, Lost},
		{tcpCloseWait, fin, none | unack, ClientSide, Open, Lost},

		{tcpFinWait, none, fin, ServerSide, Over, Over},
		{tcpFinWait, none, fin | unack, ServerSide, Open, Lost},
		{tcpFinWait, none | unack, fin, ServerSide, Over, Over},
		{tcpCloseWait, none, fin, ServerSide, Over, Over},
		{tcpCloseWait, none, fin | unack, ServerSide, Open, Lost},

		// Both, or picked up in the middle: nobody can tell, so it blocks.
		{tcpFinWait, fin, fin, NoSide, Open, Lost},
		{tcpCloseWait, none, none, NoSide, Open, Lost},

		// What the server sent last may have to be sent again.
		{tcpLastAck, fin, none | unack, ClientSide, Open, Over},
		{tcpLastAck, none, fin | unack, ServerSide, Open, Over},
		{tcpLastAck, fin, none, ClientSide, Over, Over},
		{tcpLastAck, none | unack, fin, ServerSide, Over, Over},
		{tcpTimeWait, fin, none, ClientSide, Over, Over},
		{tcpTimeWait, fin, none | unack, ClientSide, Open, Over},
		{tcpTimeWait, fin | unack, none, ClientSide, Over, Over},
		{tcpTimeWait, none, fin, ServerSide, Over, Over},
		{tcpClose, none, none, NoSide, Over, Over},
		{200, none, none, NoSide, Open, Lost}, // of a kernel to come
	} {
		for _, reversed := range []bool{false, true} {
			name := fmt.Sprintf("%s client %#x server %#x reversed %v",
				stateName(TCP, tt.state, true), tt.client, tt.server, reversed)
			t.Run(name, func(t *testing.T) {
				f := inTCP(tt.state, tt.client, tt.server, reversed)
				now := epoch.Add(time.Second)
				if first := f.closedFirst(reversed); first != tt.first {
					t.Errorf("closed first: %q, want %q", first, tt.first)
				}
				if got := f.judge(now, usualRules, reversed); got != tt.live {
					t.Errorf("%s, want %s", got, tt.live)
				}
				f.vanish(now)
				if got := f.judge(now, usualRules, reversed); got != tt.gone {
					t.Errorf("after it vanished: %s, want %s", got, tt.gone)
				}
			})
		}
	}
}

func TestJudgeTCPWithoutState(t *testing.T) {
	for name, e := range map[string]entry{
		"no state":                {proto: TCP},
		"offloaded":               {proto: TCP, status: statusOffload},
		"offloaded by the card":   {proto: TCP, status: statusHwOffload},
		"offloaded, in TIME_WAIT": {proto: TCP, status: statusOffload, state: tcpTimeWait, hasState: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFlow(&e, usualLimits, epoch, epoch)
			r := rules{limits: usualLimits, idleAfter: time.Second}
			if got := f.judge(epoch.Add(time.Hour), r, false); got != Open {
				t.Errorf("%s, want open", got)
			}
			f.vanish(epoch)
			if got := f.judge(epoch.Add(time.Hour), r, false); got != Lost {
				t.Errorf("after it vanished: %s, want lost", got)
			}
		})
	}
}

func TestJudgeHandshakes(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		proto Protocol
		state uint8
		after time.Duration
		want  State
	}{
		{"SYN_SENT", TCP, tcpSynSent, 3*s - 1, Opening},
		{"SYN_SENT", TCP, tcpSynSent, 3 * s, 0},
		{"SYN_SENT2", TCP, tcpSynSent2, 3 * s, 0},
		{"SYN_RECV", TCP, tcpSynRecv, 5*s - 1, Open},
		{"SYN_RECV", TCP, tcpSynRecv, 5 * s, 0},
		{"ESTABLISHED", TCP, tcpEstablished, time.Hour, Open},
		{"half-closed by the client", TCP, tcpCloseWait, time.Hour, Open},
		{"COOKIE_WAIT", SCTP, sctpCookieWait, 3*s - 1, Opening},
		{"COOKIE_WAIT", SCTP, sctpCookieWait, 3 * s, 0},
		{"COOKIE_ECHOED", SCTP, sctpCookieEchoed, time.Minute, Open},
	} {
		t.Run(fmt.Sprint(tt.name, " after ", tt.after), func(t *testing.T) {
			e := entry{
				proto: tt.proto, status: statusSeenReply, state: tt.state, hasState: true,
				flags: [2]uint8{flagCloseInit, 0}, timeout: 60, hasTimeout: true,
			}
			f := newFlow(&e, usualLimits, epoch, epoch)
			if got := f.judge(epoch.Add(tt.after), usualRules, false); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestJudgeSynRecvCountsFromTheState(t *testing.T) {
	e := entry{proto: TCP, state: tcpSynSent, hasState: true, timeout: 120, hasTimeout: true}
	f := newFlow(&e, usualLimits, epoch, epoch)
	e.state = tcpSynRecv
	since := epoch.Add(10 * time.Second)
	f.update(&e, usualLimits, since, since)
	if got := f.judge(since.Add(4*time.Second), usualRules, false); got != Open {
		t.Errorf("%s, want open", got)
	}
	// The server repeats its answer: that is no new state.
	f.update(&e, usualLimits, since.Add(4*time.Second), since.Add(4*time.Second))
	if got := f.judge(since.Add(5*time.Second), usualRules, false); got != 0 {
		t.Errorf("%s, want no session", got)
	}
	f.vanish(since)
	if got := f.judge(since.Add(5*time.Second), usualRules, false); got != 0 {
		t.Errorf("after it vanished: %s, want no session", got)
	}
}

// told is what a look was told of the remaining life.
type told struct {
	at        time.Duration
	remaining uint32
}

// looked is a flow after some looks at it.
func looked(e entry, l limits, looks ...told) *flow {
	e.hasTimeout = true
	var f *flow
	for _, look := range looks {
		now := epoch.Add(look.at)
		if e.timeout = look.remaining; f == nil {
			f = newFlow(&e, l, now, now)
		} else {
			f.update(&e, l, now, now)
		}
	}
	return f
}

func TestJudgeUDP(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name      string
		status    uint32
		looks     []told
		idleAfter time.Duration
		want      State
	}{
		{"just now", 0, []told{{0, 30}}, 0, Open},
		{"silence, 4 s at the least", 0, []told{{0, 30}, {5 * s, 25}}, 0, Open},
		{"silence, 5 s at the least", 0, []told{{0, 30}, {6 * s, 24}}, 0, Over},
		{"a packet", 0, []told{{0, 30}, {6 * s, 24}, {7 * s, 29}}, 0, Open},
		// By the general setting it has been quiet; a policy of its own may differ.
		{"first seen quiet for long", 0, []told{{0, 3}}, 0, Open},
		{"first seen quiet for long, and quiet for 5 s", 0, []told{{0, 9}, {5 * s, 4}}, 0, Over},
		{"a policy of 12 s, a packet each second", 0, []told{{0, 11}, {2 * s, 11}, {6 * s, 11}}, 0, Open},
		{"a stream, just now", statusAssured, []told{{0, 119}}, 0, Open},
		{"more than the setting: nobody knows", 0, []told{{0, 200}}, 0, Open},
		{"idle before it is over", 0, []told{{0, 30}, {3 * s, 27}}, 2 * s, Idle},
		{"over, idle or not", 0, []told{{0, 30}, {6 * s, 24}}, 2 * s, Over},
		{"idle-after beyond its life", 0, []told{{0, 30}, {6 * s, 24}}, time.Minute, Over},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := looked(entry{proto: UDP, status: tt.status}, usualLimits, tt.looks...)
			r := rules{limits: usualLimits, idleAfter: tt.idleAfter}
			// A reader that is kept from looking does not take that for silence.
			if got := f.judge(epoch.Add(time.Hour), r, false); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// Where there is one look only, its estimate is all there is.
func TestJudgeByOneLook(t *testing.T) {
	r := rules{limits: usualLimits, idleAfter: time.Minute, once: true}
	for _, tt := range []struct {
		e         entry
		remaining uint32
		want      State
	}{
		{entry{proto: UDP}, 25, Open},
		{entry{proto: UDP}, 24, Over},
		{entry{proto: UDP, status: statusAssured}, 110, Over},
		{entry{proto: TCP, status: statusSeenReply, state: tcpEstablished, hasState: true}, 431900, Idle},
		{entry{proto: TCP, status: statusSeenReply, state: tcpEstablished, hasState: true}, 431990, Open},
	} {
		f := looked(tt.e, usualLimits, told{0, tt.remaining})
		if got := f.judge(epoch, r, false); got != tt.want {
			t.Errorf("%s with %d s left: %s, want %s", tt.e.proto, tt.remaining, got, tt.want)
		}
	}
}

// The age of a handshake is told by what is left of its time.
func TestJudgeOldHandshake(t *testing.T) {
	l := usualLimits
	l.tcpSynSent = 120 * time.Second
	for remaining, want := range map[uint32]State{119: Opening, 117: Opening, 110: 0} {
		f := newFlow(&entry{proto: TCP, state: tcpSynSent, hasState: true, timeout: remaining, hasTimeout: true}, l, epoch, epoch)
		if got := f.judge(epoch, rules{limits: l}, false); got != want {
			t.Errorf("%d s left: %s, want %s", remaining, got, want)
		}
	}
}

func TestJudgeUDPAfterItVanished(t *testing.T) {
	f := looked(entry{proto: UDP}, usualLimits, told{0, 30}, told{3 * time.Second, 27})
	gone := epoch.Add(4 * time.Second)
	f.vanish(gone)
	// Quiet for 2 s at the last look, and a packet would have made an entry anew.
	for after, want := range map[time.Duration]State{0: Open, 3*time.Second - 1: Open, 3 * time.Second: Over} {
		if got := f.judge(gone.Add(after), usualRules, false); got != want {
			t.Errorf("%s after it vanished: %s, want %s", after, got, want)
		}
	}
}

func TestJudgeSCTP(t *testing.T) {
	for state, want := range map[uint8]State{
		sctpNone: Open, sctpClosed: Over, sctpCookieWait: Opening, sctpCookieEchoed: Open,
		sctpEstablished: Open, sctpHeartbeatSent: Open, sctpHeartbeatAcked: Open,
		sctpShutdownSent: Over, sctpShutdownRecd: Over, sctpShutdownAckSent: Over,
	} {
		t.Run(stateName(SCTP, state, true), func(t *testing.T) {
			e := entry{proto: SCTP, state: state, hasState: true, timeout: 210, hasTimeout: true}
			f := newFlow(&e, usualLimits, epoch, epoch)
			if got := f.judge(epoch.Add(time.Second), usualRules, false); got != want {
				t.Errorf("%s, want %s", got, want)
			}
			f.vanish(epoch)
			if got := f.judge(epoch.Add(time.Second), usualRules, false); got != Over {
				t.Errorf("after it vanished: %s, want over", got)
			}
		})
	}
}

func TestJudgeIdle(t *testing.T) {
	const s = time.Second
	short := usualLimits
	short.tcpEstablished = 100 * s // less than the caps
	established := entry{proto: TCP, status: statusSeenReply, state: tcpEstablished}
	unacknowledged := func(by int) entry {
		e := established
		e.flags[by] = flagDataUnacknowledged
		return e
	}
	halfClosed := entry{proto: TCP, state: tcpCloseWait, flags: [2]uint8{flagCloseInit, 0}}
	for _, tt := range []struct {
		name   string
		limits limits
		e      entry
		looks  []told
		want   State
	}{
		{"quiet, but not for long enough", usualLimits, established, []told{{0, 431999}, {59 * s, 431940}}, Open},
		{"quiet", usualLimits, established, []told{{0, 431999}, {60 * s, 431939}}, Idle},
		{"quiet before anybody looked", usualLimits, established, []told{{0, 431900}, {2 * s, 431898}}, Idle},
		{"quiet for hours before anybody looked", usualLimits, established, []told{{0, 420000}, {2 * s, 419998}}, Idle},
		{"a policy of an hour, a packet each second", usualLimits, established, []told{{0, 3599}, {2 * s, 3599}}, Open},
		{"not looked at for an hour", usualLimits, established, []told{{0, 431999}}, Open},
		// A download whose reader pauses: 300 s are left at the most, after each of
		// the server's probes. Nobody knows for how long.
		{"a paused download", usualLimits, established, []told{{0, 299}, {200 * s, 99}}, Open},
		{"a download that pauses now", usualLimits, established, []told{{0, 431999}, {s, 299}, {200 * s, 100}}, Open},
		{"an unacknowledged answer", usualLimits, unacknowledged(dirReply), []told{{0, 250}, {200 * s, 50}}, Open},
		{"a short setting, quiet", short, established, []told{{0, 99}, {61 * s, 38}}, Idle},
		{"a short setting, server unacknowledged", short, unacknowledged(dirReply), []told{{0, 99}, {60 * s, 39}}, Open},
		{"a short setting, client unacknowledged", short, unacknowledged(dirOrig), []told{{0, 99}, {60 * s, 39}}, Open},
		{"half-closed", usualLimits, halfClosed, []told{{0, 3599}, {1000 * s, 2599}}, Open},
		{"SCTP", usualLimits, entry{proto: SCTP, state: sctpEstablished}, []told{{0, 210}, {61 * s, 149}}, Idle},
		{"SCTP that begins", usualLimits, entry{proto: SCTP, state: sctpCookieEchoed}, []told{{0, 210}, {61 * s, 149}}, Open},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.e.hasState = true
			f := looked(tt.e, tt.limits, tt.looks...)
			now := epoch.Add(time.Hour)
			r := rules{limits: tt.limits, idleAfter: 60 * s}
			if got := f.judge(now, r, false); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			r.idleAfter = 0
			if got := f.judge(now, r, false); got != Open {
				t.Errorf("idle-after off: %s, want open", got)
			}
		})
	}
}

func TestJudgeIdleEndsWithAPacket(t *testing.T) {
	e := entry{proto: TCP, status: statusSeenReply, state: tcpEstablished, hasState: true, timeout: 431999, hasTimeout: true}
	f := looked(e, usualLimits, told{0, 431999}, told{2 * time.Minute, 431879})
	r := rules{limits: usualLimits, idleAfter: time.Minute}
	if got := f.judge(epoch, r, false); got != Idle {
		t.Fatalf("%s, want idle", got)
	}
	now := epoch.Add(3 * time.Minute)
	if !f.update(&e, usualLimits, now, now) {
		t.Error("a packet is no change")
	}
	if got := f.judge(now, r, false); got != Open {
		t.Errorf("%s, want open", got)
	}
}

func TestJudgeLost(t *testing.T) {
	f := inTCP(tcpEstablished, 0, 0, false)
	f.vanish(epoch)
	f.vanish(epoch.Add(time.Minute)) // said again: it was gone before
	for _, tt := range []struct {
		lostAfter, after time.Duration
		want             State
	}{
		{0, 24 * time.Hour, Lost},
		{2 * time.Minute, 2*time.Minute - 1, Lost},
		{2 * time.Minute, 2 * time.Minute, Over},
	} {
		r := rules{limits: usualLimits, lostAfter: tt.lostAfter, idleAfter: time.Second}
		if got := f.judge(epoch.Add(tt.after), r, false); got != tt.want {
			t.Errorf("lost-after %s, %s later: %s, want %s", tt.lostAfter, tt.after, got, tt.want)
		}
	}
	if !f.update(&entry{proto: TCP, status: statusSeenReply, state: tcpEstablished, hasState: true}, usualLimits, epoch, epoch) {
		t.Error("its return is no change")
	}
	if got := f.judge(epoch.Add(time.Hour), usualRules, false); got != Open {
		t.Errorf("seen again: %s, want open", got)
	}
}

func TestJudgeOtherProtocolIsNoSession(t *testing.T) {
	f := newFlow(&entry{proto: 1, timeout: 30, hasTimeout: true}, usualLimits, epoch, epoch)
	if got := f.judge(epoch, usualRules, false); got != 0 {
		t.Errorf("%s, want none", got)
	}
}

func TestFlowStatusOnlyUpdateKeepsTheState(t *testing.T) {
	f := inTCP(tcpCloseWait, flagCloseInit, 0, false)
	f.update(&entry{proto: TCP, status: statusAssured, timeout: 60, hasTimeout: true}, usualLimits, epoch, epoch)
	if f.state != tcpCloseWait || !f.assured() || f.closedFirst(false) != ClientSide {
		t.Errorf("flow = %+v", f.entry)
	}
}

func TestFlowMayRevive(t *testing.T) {
	for _, tt := range []struct {
		name        string
		state       uint8
		flags       uint8
		young, gone bool
		want        bool
	}{
		{"reset", tcpClose, 0x23, false, false, true},
		{"reset, and its end will be told", tcpClose, 0x23, true, false, false},
		{"reset and gone", tcpClose, 0x23, false, true, false},
		{"closed in an orderly way", tcpTimeWait, 0x27, false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := inTCP(tt.state, tt.flags, 0x23, false)
			f.young = tt.young
			if tt.gone {
				f.vanish(epoch)
			}
			if !f.ended() || f.mayRevive() != tt.want {
				t.Errorf("ended %v, may revive %v", f.ended(), f.mayRevive())
			}
		})
	}
}
