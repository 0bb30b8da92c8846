package conntrack

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
)

func TestDecodeRecordedEntries(t *testing.T) {
	const dnat, confirmed = 0x1ae, 0xe // the lab's Service, and entries made by netlink
	for name, want := range map[string]entry{
		"tcp-established-dnat": {
			proto: TCP, id: 443673485, status: dnat, timeout: 431999, hasTimeout: true,
			orig:  tuple{src: addrPort("192.168.10.20:36646"), dst: addrPort("10.96.0.10:80")},
			reply: tuple{src: addrPort("10.244.1.7:8080"), dst: addrPort("192.168.10.20:36646")},
			state: tcpEstablished, hasState: true, flags: [2]uint8{0x23, 0x23},
		},
		"tcp-closewait-client-first": {
			proto: TCP, id: 443673485, status: dnat, timeout: 119, hasTimeout: true,
			orig:  tuple{src: addrPort("192.168.10.20:36646"), dst: addrPort("10.96.0.10:80")},
			reply: tuple{src: addrPort("10.244.1.7:8080"), dst: addrPort("192.168.10.20:36646")},
			state: tcpFinWait, hasState: true, flags: [2]uint8{0x37, 0x23},
		},
		"tcp-timewait": {
			proto: TCP, id: 443673485, status: dnat, timeout: 119, hasTimeout: true,
			orig:  tuple{src: addrPort("192.168.10.20:36646"), dst: addrPort("10.96.0.10:80")},
			reply: tuple{src: addrPort("10.244.1.7:8080"), dst: addrPort("192.168.10.20:36646")},
			state: tcpTimeWait, hasState: true, flags: [2]uint8{0x27, 0x23},
		},
		"tcp6-established": {
			proto: TCP, id: 1415376441, status: dnat, timeout: 431999, hasTimeout: true,
			orig:  tuple{src: addrPort("[fd00:10::20]:51536"), dst: addrPort("[fd00:96::10]:80")},
			reply: tuple{src: addrPort("[fd00:244:1::7]:8080"), dst: addrPort("[fd00:10::20]:51536")},
			state: tcpEstablished, hasState: true, flags: [2]uint8{0x23, 0x23},
		},
		"tcp-zone": {
			proto: TCP, zone: 7, id: 3905541109, status: confirmed, timeout: 86399, hasTimeout: true,
			orig:  tuple{src: addrPort("192.168.10.20:40001"), dst: addrPort("10.244.1.7:8080")},
			reply: tuple{src: addrPort("10.244.1.7:8080"), dst: addrPort("192.168.10.20:40001")},
			state: tcpEstablished, hasState: true, flags: [2]uint8{0x0f, 0x1b},
		},
		"tcp-tuple-zone": {
			proto: TCP, id: 1576363715, status: confirmed, timeout: 999, hasTimeout: true,
			orig:  tuple{src: addrPort("192.168.10.20:40002"), dst: addrPort("10.244.1.7:8080"), zone: 9},
			reply: tuple{src: addrPort("10.244.1.7:8080"), dst: addrPort("192.168.10.20:40002")},
			state: tcpEstablished, hasState: true,
		},
		"udp-unreplied": {
			proto: UDP, id: 2453599098, status: 0x1a8, timeout: 30, hasTimeout: true,
			orig:  tuple{src: addrPort("192.168.10.20:53685"), dst: addrPort("10.96.0.10:80")},
			reply: tuple{src: addrPort("10.244.1.7:8080"), dst: addrPort("192.168.10.20:53685")},
		},
		"sctp-established": {
			proto: SCTP, id: 3091285652, status: confirmed, timeout: 86399, hasTimeout: true,
			orig:  tuple{src: addrPort("192.168.10.20:40000"), dst: addrPort("10.244.1.7:36412")},
			reply: tuple{src: addrPort("10.244.1.7:36412"), dst: addrPort("192.168.10.20:40000")},
			state: sctpEstablished, hasState: true,
		},
		"icmp-echo": {
			proto: 1, id: 2136941828, status: 0x18a, timeout: 29, hasTimeout: true,
			orig:  tuple{src: addrPort("192.168.10.20:0"), dst: addrPort("10.244.1.7:0")},
			reply: tuple{src: addrPort("10.244.1.7:0"), dst: addrPort("192.168.10.20:0")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := entry{id: 1, zone: 1, state: 9, flags: [2]uint8{1, 1}} // of the flow before
			ok, err := got.decode(recorded(t, "FuzzDecodeEntry", name), nil)
			if !ok || err != nil {
				t.Fatalf("decoded %v, %v", ok, err)
			}
			if d := cmp.Diff(want, got, inside); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDecodeOffloadedEntryIsOpen(t *testing.T) {
	for _, status := range []uint32{statusOffload, statusHwOffload} {
		var e entry
		b := payload(t, tuples(number(ctaStatus, status|0xe))...)
		if ok, err := e.decode(b, nil); !ok || err != nil {
			t.Fatalf("decoded %v, %v", ok, err)
		}
		if e.hasTimeout || e.hasState || !e.offloaded() {
			t.Errorf("entry = %+v", e)
		}
		now := time.Now()
		f := newFlow(&e, usualLimits, now, now)
		if state := f.judge(now.Add(time.Hour), rules{limits: usualLimits, idleAfter: time.Second}, false); state != Open {
			t.Errorf("status %#x: %s, want open", status, state)
		}
	}
}

func TestDecodeIgnoresWhatItDoesNotKnow(t *testing.T) {
	unknown := attr(99, 1, 2, 3)
	b := payload(t, append([]netlink.Attribute{unknown},
		tuples(unknown, nest(ctaProtoInfo, nest(7, unknown)), nest(ctaProtoInfo, nest(ctaProtoInfoTCP,
			unknown, attr(ctaProtoInfoTCPState, tcpEstablished))))...)...)
	var e entry
	if ok, err := e.decode(b, nil); !ok || err != nil {
		t.Fatalf("decoded %v, %v", ok, err)
	}
	if e.state != tcpEstablished {
		t.Errorf("entry = %+v", e)
	}
}

func TestDecodeMalformed(t *testing.T) {
	short := func(typ uint16, data ...byte) []byte { return payload(t, tuples(attr(typ, data...))...) }
	tcp := func(children ...netlink.Attribute) []byte {
		return payload(t, tuples(nest(ctaProtoInfo, nest(ctaProtoInfoTCP, children...)))...)
	}
	tuple := func(children ...netlink.Attribute) []byte {
		return payload(t, append(tuples()[:1], nest(ctaTupleReply, children...))...)
	}
	whole := payload(t, tuples()...)
	for name, b := range map[string][]byte{
		"empty":                     {},
		"header cut":                {2, 0, 0},
		"no attributes":             payload(t),
		"original tuple only":       payload(t, tuples()[0]),
		"reply tuple only":          payload(t, tuples()[1]),
		"attribute shorter than 4":  append(slices.Clone(whole), 3, 0, 1, 0),
		"attribute of no length":    append(slices.Clone(whole), 0, 0, 0, 0),
		"attribute beyond the end":  append(slices.Clone(whole), 9, 0, 1, 0, 1, 2, 3, 4),
		"bytes behind the last":     append(slices.Clone(whole), 1, 2, 3),
		"tuple without addresses":   tuple(nest(ctaTupleProto, attr(ctaProtoNum, 6))),
		"tuple of one address":      tuple(nest(ctaTupleIP, attr(ctaIPv4Src, 1, 2, 3, 4))),
		"address of 3 bytes":        tuple(nest(ctaTupleIP, attr(ctaIPv4Src, 1, 2, 3), attr(ctaIPv4Dst, 1, 2, 3, 4))),
		"IPv6 address of 4 bytes":   tuple(nest(ctaTupleIP, attr(ctaIPv6Src, 1, 2, 3, 4), attr(ctaIPv4Dst, 1, 2, 3, 4))),
		"addresses of two families": tuple(nest(ctaTupleIP, attr(ctaIPv4Src, 1, 2, 3, 4), attr(ctaIPv6Dst, make([]byte, 16)...))),
		"protocol of 0 bytes":       tuple(nest(ctaTupleProto, attr(ctaProtoNum))),
		"port of 1 byte":            tuple(nest(ctaTupleProto, attr(ctaProtoSrcPort, 1))),
		"tuple zone of 1 byte":      tuple(attr(ctaTupleZone, 1)),
		"status of 2 bytes":         short(ctaStatus, 0, 1),
		"timeout of 3 bytes":        short(ctaTimeout, 0, 0, 1),
		"id of 0 bytes":             short(ctaID),
		"zone of 1 byte":            short(ctaZone, 7),
		"TCP state of 0 bytes":      tcp(attr(ctaProtoInfoTCPState)),
		"TCP flags of 0 bytes":      tcp(attr(ctaProtoInfoTCPFlagsReply)),
		"protocol info cut":         short(ctaProtoInfo, 8, 0, 1),
	} {
		t.Run(name, func(t *testing.T) {
			var e entry
			ok, err := e.decode(slices.Clip(b), nil)
			if ok || !errors.Is(err, errMalformed) {
				t.Errorf("decoded %v, %v", ok, err)
			}
		})
	}
}

func TestDecodeEveryCutMessage(t *testing.T) {
	for _, name := range recordedNames(t, "FuzzDecodeEntry") {
		b := recorded(t, "FuzzDecodeEntry", name)
		for n := range b {
			cut := slices.Clip(slices.Clone(b[:n]))
			var e entry
			ok, err := e.decode(cut, nil)
			// Between two attributes nobody can tell that more should follow.
			if !ok && !errors.Is(err, errMalformed) {
				t.Errorf("%s cut to %d bytes: decoded %v, %v", name, n, ok, err)
			}
		}
	}
}

func TestDecodeStopsWhereNotWanted(t *testing.T) {
	broken := append(payload(t, tuples()...), 3, 0, 0, 0)
	asked := 0
	for _, wanted := range []bool{false, true} {
		var e entry
		ok, err := e.decode(broken, func(e *entry) bool {
			asked++
			if e.proto != TCP || e.orig.src != addrPort("192.168.10.20:40000") || e.reply.src != addrPort("10.244.1.7:8080") {
				t.Errorf("asked about %+v", e)
			}
			return wanted
		})
		if ok {
			t.Error("decoded a broken message")
		}
		if malformed := errors.Is(err, errMalformed); malformed != wanted {
			t.Errorf("wanted %v: %v", wanted, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times, want once for each message", asked)
	}
	asked = 0
	var e entry
	ok, err := e.decode(recorded(t, "FuzzDecodeEntry", "tcp-zone"), func(*entry) bool { asked++; return true })
	if !ok || err != nil || asked != 1 || e.zone != 7 {
		t.Errorf("decoded %v, %v, asked %d times, zone %d", ok, err, asked, e.zone)
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	b := recorded(t, "FuzzDecodeEntry", "tcp6-established")
	host := addr("fd00:244:1::7")
	var e entry
	wanted := func(e *entry) bool { return e.reply.src.Addr() == host }
	if n := testing.AllocsPerRun(100, func() {
		if ok, err := e.decode(b, wanted); !ok || err != nil {
			t.Fatalf("decoded %v, %v", ok, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a message", n)
	}
}
