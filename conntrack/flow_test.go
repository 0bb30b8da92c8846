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
	e := entry{proto: TCP, state: state, hasState: true, flags: [2]uint8{client, server}, timeout: 100, hasTimeout: true}
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

		{tcpLastAck, fin, none | unack, ClientSide, Over, Over},
		{tcpLastAck, none, fin | unack, ServerSide, Over, Over},
		{tcpTimeWait, fin, none, ClientSide, Over, Over},
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
			e := entry{proto: tt.proto, state: tt.state, hasState: true, flags: [2]uint8{flagCloseInit, 0}, timeout: 60, hasTimeout: true}
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

func TestJudgeUDP(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name      string
		remaining uint32
		status    uint32
		after     time.Duration
		idleAfter time.Duration
		want      State
	}{
		{"just now", 30, 0, 0, 0, Open},
		{"5 s ago at the most", 30, 0, 5*s - 1, 0, Open},
		{"5 s ago", 30, 0, 5 * s, 0, Over},
		{"first seen quiet for long", 20, 0, 0, 0, Over},
		{"first seen, 4 s at the least", 25, 0, 0, 0, Open},
		{"a stream, first seen quiet for long", 110, statusAssured, 0, 0, Over},
		{"a stream, just now", 119, statusAssured, 0, 0, Open},
		{"more than the setting: nobody knows", 200, 0, 0, 0, Open},
		{"idle before it is over", 30, 0, 2 * s, 2 * s, Idle},
		{"over, idle or not", 30, 0, 5 * s, 2 * s, Over},
		{"idle-after beyond its life", 30, 0, 5 * s, time.Minute, Over},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := entry{proto: UDP, timeout: tt.remaining, hasTimeout: true, status: tt.status}
			f := newFlow(&e, usualLimits, epoch, epoch)
			r := rules{limits: usualLimits, idleAfter: tt.idleAfter}
			for _, gone := range []bool{false, true} {
				if gone {
					f.vanish(epoch)
				}
				if got := f.judge(epoch.Add(tt.after), r, false); got != tt.want {
					t.Errorf("vanished %v: %s, want %s", gone, got, tt.want)
				}
			}
		})
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
	for _, tt := range []struct {
		name   string
		limits limits
		e      entry
		after  time.Duration
		want   State
	}{
		{"quiet, but not for long enough", usualLimits,
			entry{proto: TCP, state: tcpEstablished, timeout: 431999}, 59 * s, Open},
		{"quiet", usualLimits,
			entry{proto: TCP, state: tcpEstablished, timeout: 431999}, 60 * s, Idle},
		{"quiet before anybody looked", usualLimits,
			entry{proto: TCP, state: tcpEstablished, timeout: 431900}, 0, Idle},
		{"quiet for hours before anybody looked", usualLimits,
			entry{proto: TCP, state: tcpEstablished, timeout: 420000}, 0, Idle},
		// A download whose reader pauses: 300 s are left at the most, after each of
		// the server's probes. Nobody knows for how long.
		{"a paused download", usualLimits,
			entry{proto: TCP, state: tcpEstablished, timeout: 299}, time.Hour, Open},
		{"an unacknowledged answer", usualLimits,
			entry{proto: TCP, state: tcpEstablished, timeout: 250, flags: [2]uint8{0, flagDataUnacknowledged}}, time.Hour, Open},
		{"a short setting, quiet", short,
			entry{proto: TCP, state: tcpEstablished, timeout: 99}, 60 * s, Idle},
		{"a short setting, server unacknowledged", short,
			entry{proto: TCP, state: tcpEstablished, timeout: 99, flags: [2]uint8{0, flagDataUnacknowledged}}, 60 * s, Open},
		{"a short setting, client unacknowledged", short,
			entry{proto: TCP, state: tcpEstablished, timeout: 99, flags: [2]uint8{flagDataUnacknowledged, 0}}, 60 * s, Open},
		{"half-closed", usualLimits,
			entry{proto: TCP, state: tcpCloseWait, timeout: 59, flags: [2]uint8{flagCloseInit, 0}}, time.Hour, Open},
		{"a handshake", usualLimits,
			entry{proto: TCP, state: tcpSynRecv, timeout: 59}, 4 * s, Open},
		{"SCTP", usualLimits,
			entry{proto: SCTP, state: sctpEstablished, timeout: 210}, 60*s + s, Idle},
		{"SCTP that begins", usualLimits,
			entry{proto: SCTP, state: sctpCookieEchoed, timeout: 3}, 61 * s, Open},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.e.hasState, tt.e.hasTimeout = true, true
			f := newFlow(&tt.e, tt.limits, epoch, epoch)
			r := rules{limits: tt.limits, idleAfter: 60 * s}
			if got := f.judge(epoch.Add(tt.after), r, false); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			r.idleAfter = 0
			if got := f.judge(epoch.Add(tt.after), r, false); got != Open {
				t.Errorf("idle-after off: %s, want open", got)
			}
		})
	}
}

func TestJudgeIdleEndsWithAPacket(t *testing.T) {
	e := entry{proto: TCP, state: tcpEstablished, hasState: true, timeout: 431999, hasTimeout: true}
	f := newFlow(&e, usualLimits, epoch, epoch)
	r := rules{limits: usualLimits, idleAfter: time.Minute}
	now := epoch.Add(2 * time.Minute)
	if got := f.judge(now, r, false); got != Idle {
		t.Fatalf("%s, want idle", got)
	}
	if !f.update(&e, usualLimits, now, now) {
		t.Error("a packet is no change")
	}
	if got := f.judge(now, r, false); got != Open {
		t.Errorf("%s, want open", got)
	}
	// The reader of a download stops reading: the caps apply from now on.
	e.timeout = 299
	f.update(&e, usualLimits, now.Add(time.Second), now.Add(time.Second))
	if got := f.judge(now.Add(4*time.Minute), r, false); got != Open {
		t.Errorf("paused: %s, want open", got)
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
	if !f.update(&entry{proto: TCP, state: tcpEstablished, hasState: true}, usualLimits, epoch, epoch) {
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
