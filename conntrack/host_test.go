package conntrack

import (
	"slices"
	"testing"
	"time"
)

// hostOf is the pod, watched for a target and in step with the kernel.
func hostOf(t Target) (*host, *Watch) {
	t.Addresses = append(t.Addresses, pod)
	t = t.normalized()
	h := newHost(pod, usualLimits)
	h.interest.widen(t)
	w := &Watch{
		reader: &Reader{limits: usualLimits}, target: t,
		hosts: []*host{h}, changes: make(chan struct{}, 1), baseline: epoch,
	}
	h.watches = []*Watch{w}
	h.synced = true
	return h, w
}

// states are what the watch shows at a time, over ones left out.
func states(w *Watch, now time.Time) []State {
	var found []State
	w.each(now, func(_ *kept, s State, _, _ bool) { found = append(found, s) })
	slices.Sort(found)
	return found
}

func expect(t *testing.T, w *Watch, now time.Time, want ...State) {
	t.Helper()
	if got := states(w, now); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func see(h *host, e entry, now time.Time) bool { return h.observe(&e, false, now, now) }

func hear(h *host, kind eventKind, e entry, now time.Time) bool { return h.event(kind, &e, now) }

// bare is a message without what only the protocol's tracker tells.
func bare(e entry) entry {
	e.state, e.hasState, e.flags = 0, false, [2]uint8{}
	return e
}

func TestHostWants(t *testing.T) {
	in, out := fromClient(40000, tcpEstablished), fromPod(50000, tcpEstablished)
	udp := in
	udp.proto = UDP
	sctp := in
	sctp.proto = SCTP
	icmp := in
	icmp.proto = 1
	hairpin := in
	hairpin.orig.src, hairpin.reply.dst = addrPort("10.244.1.7:50000"), addrPort("10.244.1.7:50000")
	other := in
	other.reply.src = addrPort("10.244.1.8:8080")
	port := []uint16{8080}
	for _, tt := range []struct {
		name   string
		target Target
		e      entry
		want   bool
	}{
		{"inbound", Target{}, in, true},
		{"inbound UDP", Target{}, udp, true},
		{"SCTP, not asked for", Target{}, sctp, false},
		{"SCTP", Target{Protocols: []Protocol{SCTP}}, sctp, true},
		{"TCP, not asked for", Target{Protocols: []Protocol{SCTP}}, in, false},
		{"ICMP", Target{}, icmp, false},
		{"of others", Target{Direction: Both}, other, false},
		{"to itself", Target{Direction: Both, Ports: port}, hairpin, false},
		{"outbound, not asked for", Target{}, out, false},
		{"outbound", Target{Direction: Outbound}, out, true},
		{"turned round, no ports named", Target{}, turned(in), false},
		{"turned round, from a named port", Target{Ports: port}, turned(in), true},
		{"turned round, from another port", Target{Ports: []uint16{80}}, turned(in), false},
		// The watches judge by port; another watch may ask for it.
		{"inbound, port not named", Target{Ports: []uint16{80}}, in, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := hostOf(tt.target)
			if got := h.wants(&tt.e); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
			if got := see(h, tt.e, epoch); got != tt.want || (len(h.flows) == 1) != tt.want {
				t.Errorf("observed: %v, %d flows", got, len(h.flows))
			}
		})
	}
}

func TestHostCountsOnlyWhatTheTargetAsksFor(t *testing.T) {
	for _, tt := range []struct {
		name   string
		target Target
		want   []State
	}{
		{"inbound", Target{}, []State{Open}},
		{"outbound", Target{Direction: Outbound}, []State{Open}},
		{"both", Target{Direction: Both}, []State{Open, Open}},
		{"inbound at the port", Target{Ports: []uint16{8080}}, []State{Open}},
		{"inbound at the Service's port", Target{Ports: []uint16{80}}, nil},
		{"outbound to the port", Target{Direction: Outbound, Ports: []uint16{5432}}, []State{Open}},
		{"outbound to another port", Target{Direction: Outbound, Ports: []uint16{5433}}, nil},
		{"both at a port", Target{Direction: Both, Ports: []uint16{8080, 5432}}, []State{Open, Open}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, w := hostOf(tt.target)
			see(h, fromClient(40000, tcpEstablished), epoch)
			see(h, fromPod(50000, tcpEstablished), epoch)
			expect(t, w, epoch, tt.want...)
		})
	}
}

func TestHostLifeOfASession(t *testing.T) {
	h, w := hostOf(Target{})
	now := epoch
	for _, step := range []struct {
		kind  eventKind
		state uint8
		flags [2]uint8
		want  []State
	}{
		{eventNew, tcpSynSent, [2]uint8{0x03, 0}, []State{Opening}},
		{eventUpdate, tcpSynRecv, [2]uint8{0x03, 0x23}, []State{Open}},
		{eventUpdate, tcpEstablished, [2]uint8{0x23, 0x23}, []State{Open}},
		{eventUpdate, tcpFinWait, [2]uint8{0x37, 0x23}, []State{Open}},
		{eventUpdate, tcpCloseWait, [2]uint8{0x27, 0x23}, []State{Open}},
		{eventUpdate, tcpLastAck, [2]uint8{0x27, 0x33}, []State{Open}},
		{eventUpdate, tcpTimeWait, [2]uint8{0x27, 0x23}, nil},
		{eventDestroy, tcpTimeWait, [2]uint8{}, nil},
	} {
		e := fromClient(40000, step.state)
		e.flags = step.flags
		now = now.Add(time.Second)
		hear(h, step.kind, e, now)
		expect(t, w, now, step.want...)
	}
	if w.created != 1 || w.lastNew != epoch.Add(2*time.Second) {
		t.Errorf("new: %d, the latest at %s", w.created, w.lastNew.Sub(epoch))
	}
	if len(h.flows)+len(h.sessions) != 0 || h.lost {
		t.Errorf("kept after its end: %d flows, %d sessions, lost %v", len(h.flows), len(h.sessions), h.lost)
	}
}

func TestHostNewSessions(t *testing.T) {
	for _, tt := range []struct {
		name     string
		baseline time.Time
		happens  func(h *host)
		want     int
	}{
		{"in the first snapshot", time.Time{}, func(h *host) { see(h, fromClient(1, tcpEstablished), epoch) }, 0},
		{"announced before the first snapshot is done", time.Time{}, func(h *host) {
			hear(h, eventNew, fromClient(1, tcpSynSent), epoch)
			see(h, fromClient(1, tcpEstablished), epoch)
		}, 1},
		{"told of a change before the first snapshot is done", time.Time{}, func(h *host) {
			hear(h, eventUpdate, fromClient(1, tcpEstablished), epoch)
		}, 0},
		{"found by a later snapshot", epoch, func(h *host) { see(h, fromClient(1, tcpEstablished), epoch) }, 1},
		{"seen again and again", epoch, func(h *host) {
			for range 3 {
				see(h, fromClient(1, tcpEstablished), epoch)
			}
		}, 1},
		{"two", epoch, func(h *host) {
			see(h, fromClient(1, tcpEstablished), epoch)
			hear(h, eventNew, fromClient(2, tcpSynRecv), epoch)
		}, 2},
		{"in two zones", epoch, func(h *host) {
			e := fromClient(1, tcpEstablished)
			see(h, e, epoch)
			e.zone = 4
			see(h, e, epoch)
		}, 1},
		{"lost and seen again", epoch, func(h *host) {
			hear(h, eventNew, fromClient(1, tcpEstablished), epoch)
			hear(h, eventDestroy, fromClient(1, tcpEstablished), epoch)
			see(h, turned(fromClient(1, tcpEstablished)), epoch)
		}, 1},
		{"flushed, and the client talks on", epoch, func(h *host) {
			e := fromClient(1, tcpEstablished)
			hear(h, eventNew, e, epoch)
			hear(h, eventDestroy, e, epoch)
			e.id = 7
			hear(h, eventNew, e, epoch)
		}, 1},
		{"flushed, and a new one from the same port", epoch, func(h *host) {
			e := fromClient(1, tcpEstablished)
			hear(h, eventNew, e, epoch)
			hear(h, eventDestroy, e, epoch)
			e.id, e.state = 7, tcpSynSent
			hear(h, eventNew, e, epoch)
			e.state = tcpSynRecv
			hear(h, eventUpdate, e, epoch)
		}, 2},
		{"never answered", epoch, func(h *host) { hear(h, eventNew, fromClient(1, tcpSynSent), epoch) }, 0},
		{"over when first seen", epoch, func(h *host) { see(h, fromClient(1, tcpTimeWait), epoch) }, 0},
		{"the same ports again after its end", epoch, func(h *host) {
			e := fromClient(1, tcpEstablished)
			hear(h, eventNew, e, epoch)
			e.state, e.flags[0] = tcpTimeWait, 0x27
			hear(h, eventUpdate, e, epoch)
			e.state, e.id = tcpEstablished, 7
			hear(h, eventNew, e, epoch)
		}, 2},
		{"outbound, not asked for", epoch, func(h *host) { see(h, fromPod(1, tcpEstablished), epoch) }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, w := hostOf(Target{})
			w.baseline = tt.baseline
			tt.happens(h)
			if w.created != tt.want {
				t.Errorf("new: %d, want %d", w.created, tt.want)
			}
		})
	}
}

func TestInterestWiden(t *testing.T) {
	var in interest
	for _, tt := range []struct {
		t        Target
		wider    bool
		original bool
	}{
		{Target{Protocols: []Protocol{TCP, UDP}}, true, false},
		{Target{Protocols: []Protocol{UDP}}, false, false},
		{Target{Protocols: []Protocol{UDP}, Ports: []uint16{80}}, true, true},
		{Target{Protocols: []Protocol{UDP}, Ports: []uint16{80}}, false, true},
		{Target{Direction: Both}, true, true},
		{Target{Direction: Outbound}, false, true},
	} {
		if got := in.widen(tt.t); got != tt.wider || in.original() != tt.original {
			t.Errorf("%+v: wider %v, original %v", tt.t, got, in.original())
		}
	}
}
