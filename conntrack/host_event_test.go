package conntrack

import (
	"testing"
	"time"
)

func TestHostEventOfAnotherID(t *testing.T) {
	known := fromClient(40000, tcpEstablished)
	other := fromClient(40000, tcpTimeWait)
	other.id++
	for _, kind := range []eventKind{eventUpdate, eventDestroy} {
		h, w := hostOf(Target{})
		see(h, known, epoch)
		if !hear(h, kind, other, epoch) || !h.verify || !h.flows[known.key()].verify {
			t.Errorf("kind %d: nobody asks the kernel", kind)
		}
		expect(t, w, epoch, Open)
		see(h, known, epoch) // the kernel's answer
		if h.flows[known.key()].verify {
			t.Errorf("kind %d: asked for again after the answer", kind)
		}
	}
	h, w := hostOf(Target{})
	see(h, known, epoch)
	other.state = tcpSynRecv
	hear(h, eventNew, other, epoch)
	if f := h.flows[known.key()]; f.id != other.id || f.state != tcpSynRecv || !f.young {
		t.Errorf("the new flow did not take the place of the old one: %+v", f.entry)
	}
	expect(t, w, epoch, Open)
}

func TestHostEventOfAnUnknownFlow(t *testing.T) {
	live, reset := fromClient(40000, tcpEstablished), fromClient(40000, tcpClose)
	half := fromClient(40000, tcpCloseWait)
	udp := bare(fromClient(40000, 0))
	udp.proto = UDP
	for _, tt := range []struct {
		name   string
		synced bool
		kind   eventKind
		e      entry
		want   []State
	}{
		{"a change", true, eventUpdate, live, []State{Open}},
		{"a change of the status only", true, eventUpdate, bare(live), nil},
		{"a change of the status of UDP", true, eventUpdate, udp, nil},
		{"its end", true, eventDestroy, live, nil},
		// Before the first snapshot it may have been a session.
		{"its end before the first snapshot", false, eventDestroy, live, []State{Lost}},
		{"its end, half-closed", false, eventDestroy, half, []State{Lost}},
		{"its end after TIME_WAIT", false, eventDestroy, fromClient(40000, tcpTimeWait), nil},
		{"its end after a reset", false, eventDestroy, reset, nil},
		{"its end, state unknown", false, eventDestroy, bare(live), nil},
		{"the end of UDP", false, eventDestroy, udp, nil},
		{"the end of an outbound one", false, eventDestroy, fromPod(1, tcpEstablished), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, w := hostOf(Target{})
			h.synced = tt.synced
			changed := hear(h, tt.kind, tt.e, epoch)
			expect(t, w, epoch, tt.want...)
			if len(tt.want) > 0 && !changed {
				t.Error("not told as a change")
			}
			if len(tt.want) == 0 && len(h.flows) != 0 {
				t.Errorf("%d flows kept", len(h.flows))
			}
		})
	}
}

func TestHostEnd(t *testing.T) {
	open := fromClient(40000, tcpEstablished)
	closedByPod := fromClient(40000, tcpCloseWait)
	closedByPod.flags = [2]uint8{0x23, 0x27}
	udp := bare(fromClient(40000, 0))
	udp.proto, udp.timeout = UDP, 30
	for _, tt := range []struct {
		name     string
		known    entry
		destroy  entry // what the kernel says at its end
		want     []State
		lost     bool
		keptFlow bool
	}{
		{"established", open, open, []State{Lost}, true, true},
		{"state unknown at its end", open, bare(open), []State{Lost}, true, true},
		{"closed since the last look", open, fromClient(40000, tcpTimeWait), nil, false, false},
		{"closed by the pod, flags not repeated", closedByPod, func() entry {
			e := closedByPod
			e.flags = [2]uint8{}
			return e
		}(), nil, false, false},
		{"UDP a moment ago", udp, udp, []State{Open}, false, true},
		{"never answered", fromClient(40000, tcpSynSent), fromClient(40000, tcpSynSent), nil, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, w := hostOf(Target{})
			see(h, tt.known, epoch)
			hear(h, eventDestroy, tt.destroy, epoch)
			expect(t, w, epoch, tt.want...)
			if h.lost != tt.lost {
				t.Errorf("asks for a walk: %v, want %v", h.lost, tt.lost)
			}
			if got := len(h.flows) == 1; got != tt.keptFlow {
				t.Errorf("%d flows kept", len(h.flows))
			}
			if len(h.sessions) != len(h.flows) {
				t.Errorf("%d sessions of %d flows", len(h.sessions), len(h.flows))
			}
		})
	}
}

func TestHostForgetsUDPWhenItIsOver(t *testing.T) {
	h, w := hostOf(Target{})
	e := bare(fromClient(40000, 0))
	e.proto, e.timeout = UDP, 30
	see(h, e, epoch)
	h.vanished(h.flows[e.key()], epoch.Add(time.Second))
	expect(t, w, epoch.Add(time.Second), Open)
	now := epoch.Add(7 * time.Second)
	expect(t, w, now)
	h.vanished(h.flows[e.key()], now) // the next look
	if len(h.flows)+len(h.sessions) != 0 || h.lost {
		t.Errorf("%d flows, %d sessions, lost %v", len(h.flows), len(h.sessions), h.lost)
	}
}

func TestHostFlushedSessionComesBackTurnedRound(t *testing.T) {
	e := fromClient(40000, tcpEstablished)
	h, w := hostOf(Target{})
	see(h, e, epoch)
	h.vanished(h.flows[e.key()], epoch)
	expect(t, w, epoch, Lost)
	if !h.lost || !h.wish().original {
		t.Error("nobody looks for the entry that may have taken its place")
	}
	back := turned(e)
	if !see(h, back, epoch.Add(time.Second)) {
		t.Fatal("not seen")
	}
	expect(t, w, epoch.Add(time.Second), Open)
	if len(h.sessions) != 1 {
		t.Errorf("%d sessions", len(h.sessions))
	}
	back.state, back.flags = tcpTimeWait, [2]uint8{0x27, 0x23}
	see(h, back, epoch.Add(2*time.Second))
	expect(t, w, epoch.Add(2*time.Second))
}

func TestHostFlushedSessionGoesOn(t *testing.T) {
	e := fromClient(40000, tcpEstablished)
	h, w := hostOf(Target{})
	see(h, e, epoch)
	for id := range uint32(3) {
		h.vanished(h.flows[e.key()], epoch)
		expect(t, w, epoch, Lost)
		e.id = id
		hear(h, eventNew, e, epoch.Add(time.Minute))
		expect(t, w, epoch, Open)
		if len(h.sessions) != 1 || len(h.sessionOf(h.flows[e.key()]).flows) != 1 {
			t.Fatalf("%d sessions", len(h.sessions))
		}
	}
	if k := h.sessionOf(h.flows[e.key()]); !k.firstSeen.Equal(epoch) {
		t.Errorf("it began %s later", k.firstSeen.Sub(epoch))
	}
	h.vanished(h.flows[e.key()], epoch)
	e.id, e.state, e.flags = 9, tcpTimeWait, [2]uint8{0x27, 0x23}
	see(h, e, epoch)
	expect(t, w, epoch)
	if len(h.flows)+len(h.sessions) != 0 || h.ended.IsZero() {
		t.Errorf("%d flows, %d sessions, ended %s", len(h.flows), len(h.sessions), h.ended)
	}
}

func TestHostSocketKeepsASessionThatGoesOnAsOver(t *testing.T) {
	h, w := hostOf(Target{})
	e := fromClient(40000, tcpEstablished)
	see(h, e, epoch)
	h.sessionOf(h.flows[e.key()]).socket = epoch
	h.vanished(h.flows[e.key()], epoch)
	e.id, e.state, e.flags = 7, tcpTimeWait, [2]uint8{0x27, 0x23}
	hear(h, eventNew, e, epoch)
	expect(t, w, epoch, Open)
	h.sessionOf(h.flows[e.key()]).socket = time.Time{}
	expect(t, w, epoch)
}

func TestHostRevivedEntry(t *testing.T) {
	e := fromClient(40000, tcpEstablished)
	h, w := hostOf(Target{})
	see(h, e, epoch)
	e.state = tcpClose // reset: a new connection may go on in this entry
	see(h, e, epoch.Add(time.Second))
	expect(t, w, epoch.Add(time.Second))
	if len(h.flows) != 1 {
		t.Fatal("forgotten, and no event will tell of it")
	}
	e.state = tcpEstablished
	see(h, e, epoch.Add(2*time.Second))
	expect(t, w, epoch.Add(2*time.Second), Open)
	if w.created != 2 {
		t.Errorf("new: %d, want the second one counted", w.created)
	}
}

func TestHostReplyChanged(t *testing.T) {
	h, w := hostOf(Target{})
	e := fromClient(40000, tcpEstablished)
	see(h, e, epoch)
	// The same original tuple and id, now to another port of the pod.
	e.reply.src = addrPort("10.244.1.7:9090")
	see(h, e, epoch)
	expect(t, w, epoch, Open)
	if len(h.sessions) != 1 || h.sessionOf(h.flows[e.key()]).local.Port() != 9090 {
		t.Errorf("%d sessions", len(h.sessions))
	}
}
