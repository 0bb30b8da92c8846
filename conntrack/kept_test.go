package conntrack

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var pod = addr("10.244.1.7")

// fromClient is a client's TCP flow to the pod's port 8080 through a Service.
func fromClient(clientPort uint16, state uint8) entry {
	client := netip.AddrPortFrom(addr("192.168.10.20"), clientPort)
	return entry{
		proto: TCP, id: uint32(clientPort), status: statusSeenReply, state: state, hasState: true,
		timeout: 431999, hasTimeout: true, flags: [2]uint8{0x23, 0x23},
		orig:  tuple{src: client, dst: addrPort("10.96.0.10:80")},
		reply: tuple{src: addrPort("10.244.1.7:8080"), dst: client},
	}
}

// fromPod is the pod's own flow to a database.
func fromPod(port uint16, state uint8) entry {
	from, to := netip.AddrPortFrom(pod, port), addrPort("10.0.0.5:5432")
	return entry{
		proto: TCP, id: uint32(port), status: statusSeenReply, state: state, hasState: true,
		timeout: 431999, hasTimeout: true,
		orig: tuple{src: from, dst: to}, reply: tuple{src: to, dst: from},
	}
}

// turned is the entry that a flush makes of e when the server talks first.
func turned(e entry) entry {
	e.orig, e.reply = e.reply, tuple{src: e.reply.dst, dst: e.reply.src}
	e.id += 100000
	return e
}

func TestPairOf(t *testing.T) {
	in, out := fromClient(40000, tcpEstablished), fromPod(50000, tcpEstablished)
	masqueraded := in
	masqueraded.reply.dst = addrPort("10.244.1.1:61000")
	hairpin := in
	hairpin.orig.src, hairpin.reply.dst = addrPort("10.244.1.7:50000"), addrPort("10.244.1.7:50000")
	hairpinSNAT := hairpin
	hairpinSNAT.reply.dst = addrPort("10.244.1.1:61000")
	other := in
	other.reply.src = addrPort("10.244.1.8:8080")
	type pair struct {
		Key      pairKey
		Outbound bool
		OK       bool
	}
	for name, tt := range map[string]struct {
		e    entry
		want pair
	}{
		"inbound": {in, pair{pairKey{TCP, addrPort("10.244.1.7:8080"), addrPort("192.168.10.20:40000")}, false, true}},
		"inbound, client masqueraded": {masqueraded,
			pair{pairKey{TCP, addrPort("10.244.1.7:8080"), addrPort("10.244.1.1:61000")}, false, true}},
		"outbound": {out, pair{pairKey{TCP, addrPort("10.244.1.7:50000"), addrPort("10.0.0.5:5432")}, true, true}},
		"turned round": {turned(in),
			pair{pairKey{TCP, addrPort("10.244.1.7:8080"), addrPort("192.168.10.20:40000")}, true, true}},
		"to itself":              {hairpin, pair{}},
		"to itself, masqueraded": {hairpinSNAT, pair{}},
		"of others":              {other, pair{}},
	} {
		t.Run(name, func(t *testing.T) {
			key, outbound, ok := pairOf(&tt.e, pod)
			if d := cmp.Diff(tt.want, pair{key, outbound, ok}, inside); d != "" {
				t.Error(d)
			}
		})
	}
}

// keptOf is a session of these flows.
func keptOf(flows ...*flow) *kept {
	key, _, _ := pairOf(&flows[0].entry, pod)
	return &kept{pairKey: key, flows: flows, inbound: true, firstSeen: epoch}
}

// seen is a flow that was seen some seconds after epoch, and vanished then if
// gone is not 0.
func seen(e entry, at, gone time.Duration) *flow {
	f := newFlow(&e, usualLimits, epoch.Add(at), epoch.Add(at))
	if gone != 0 {
		f.vanish(epoch.Add(gone))
	}
	return f
}

func TestKeptJudge(t *testing.T) {
	const s = time.Second
	live, over := fromClient(40000, tcpEstablished), fromClient(40000, tcpTimeWait)
	idle := live
	idle.timeout = 400000
	zoned := over
	zoned.zone = 3
	for name, tt := range map[string]struct {
		flows []*flow
		want  State
	}{
		"one open":                           {[]*flow{seen(live, 0, 0)}, Open},
		"open in one zone, over in another":  {[]*flow{seen(live, 0, 0), seen(zoned, 0, 0)}, Open},
		"idle in one zone, open in another":  {[]*flow{seen(idle, 0, 0), seen(live, 0, 0)}, Open},
		"idle in one zone, over in another":  {[]*flow{seen(idle, 0, 0), seen(zoned, 0, 0)}, Idle},
		"lost":                               {[]*flow{seen(live, 0, s)}, Lost},
		"lost, then seen turned round":       {[]*flow{seen(live, 0, s), seen(turned(live), 2*s, 0)}, Open},
		"lost, then over":                    {[]*flow{seen(live, 0, s), seen(turned(over), 2*s, 0)}, Over},
		"over, then a new one that was lost": {[]*flow{seen(over, 0, 0), seen(turned(live), 2*s, 3*s)}, Lost},
		"over":                               {[]*flow{seen(over, 0, 0)}, Over},
		"a handshake":                        {[]*flow{seen(fromClient(1, tcpSynSent), 9*s, 0)}, Opening},
		"a handshake after an over one":      {[]*flow{seen(over, 0, 0), seen(fromClient(1, tcpSynSent), 9*s, 0)}, Over},
		"never answered":                     {[]*flow{seen(fromClient(1, tcpSynSent), 0, 0)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			k := keptOf(tt.flows...)
			r := rules{limits: usualLimits, idleAfter: time.Minute, once: true}
			if got, _ := k.judge(epoch.Add(10*s), r, true); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestKeptSocketKeepsAnOverSessionOpen(t *testing.T) {
	k := keptOf(seen(fromClient(40000, tcpTimeWait), 0, 0))
	k.socket = epoch
	if got, _ := k.judge(epoch, usualRules, true); got != Open {
		t.Errorf("%s, want open", got)
	}
	k.socket = time.Time{}
	if got, _ := k.judge(epoch, usualRules, true); got != Over {
		t.Errorf("without a socket: %s, want over", got)
	}
}

func TestKeptReversedClosedByThePod(t *testing.T) {
	e := turned(fromClient(40000, tcpCloseWait))
	e.flags = [2]uint8{0x23 | flagCloseInit, 0x23} // the pod is the source
	k := keptOf(seen(e, 0, 0))
	if got, _ := k.judge(epoch, usualRules, true); got != Over {
		t.Errorf("closed by the pod: %s, want over", got)
	}
	// The same flags where the pod is the client: the other side can still answer.
	if got, _ := k.judge(epoch, usualRules, false); got != Open {
		t.Errorf("closed by the client: %s, want open", got)
	}
}

func TestKeptQuiet(t *testing.T) {
	const s = time.Second
	early, later := fromClient(40000, tcpEstablished), fromClient(40000, tcpEstablished)
	early.timeout, later.timeout = 431900, 431950
	unknown, offloaded := fromClient(40000, tcpCloseWait), fromClient(40000, tcpEstablished)
	unknown.timeout = 50
	offloaded.hasTimeout = false
	for name, tt := range map[string]struct {
		flows []*flow
		want  time.Duration
	}{
		"an estimate":        {[]*flow{seen(early, 0, 0)}, 99 * s},
		"the later of two":   {[]*flow{seen(early, 0, 0), seen(later, 0, 0)}, 49 * s},
		"vanished 8 s ago":   {[]*flow{seen(early, 0, 2*s)}, 107 * s},
		"one look tells not": {[]*flow{seen(unknown, 0, 0)}, -1},
		"offloaded":          {[]*flow{seen(offloaded, 0, 0)}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := keptOf(tt.flows...).quiet(epoch.Add(10 * s)); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

func TestKeptSession(t *testing.T) {
	in := fromClient(40000, tcpCloseWait)
	in.flags = [2]uint8{0x23 | flagCloseInit, 0x23}
	in.reply.dst = addrPort("10.244.1.1:61000") // masqueraded
	zoned := in
	zoned.zone = 9
	first := in
	first.zone = 2
	back := turned(fromClient(40000, tcpEstablished))
	out := fromPod(50000, tcpEstablished)
	out.orig.dst = addrPort("10.96.0.20:5432") // through a Service
	for name, tt := range map[string]struct {
		flows  []*flow
		server bool
		want   Session
	}{
		"inbound in two zones": {[]*flow{seen(zoned, 0, 0), seen(first, 0, 0)}, true, Session{
			Protocol: TCP, State: Open, Kernel: "CLOSE_WAIT", ClosedFirst: ClientSide, Zones: []uint16{2, 9},
			Client: addrPort("10.244.1.1:61000"), Origin: addrPort("192.168.10.20:40000"),
			Server: addrPort("10.244.1.7:8080"), Destination: addrPort("10.96.0.10:80"), Quiet: -1,
		}},
		"turned round": {[]*flow{seen(fromClient(40000, tcpEstablished), 0, time.Second), seen(back, time.Second, 0)}, true, Session{
			Protocol: TCP, State: Open, Kernel: "ESTABLISHED",
			Client: addrPort("192.168.10.20:40000"), Origin: addrPort("192.168.10.20:40000"),
			Server: addrPort("10.244.1.7:8080"), Destination: addrPort("10.244.1.7:8080"), Quiet: 0,
		}},
		"outbound": {[]*flow{seen(out, 0, 0)}, false, Session{
			Protocol: TCP, State: Open, Kernel: "ESTABLISHED", Outbound: true,
			Client: addrPort("10.244.1.7:50000"), Origin: addrPort("10.244.1.7:50000"),
			Server: addrPort("10.0.0.5:5432"), Destination: addrPort("10.96.0.20:5432"), Quiet: 0,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.FirstSeen = epoch
			got := keptOf(tt.flows...).session(epoch.Add(2*time.Second), Open, tt.server)
			if d := cmp.Diff(tt.want, got, inside); d != "" {
				t.Error(d)
			}
		})
	}
}
