package conntrack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mdlayher/netlink"
	"github.com/ti-mo/netfilter"
)

var (
	addr     = netip.MustParseAddr
	addrPort = netip.MustParseAddrPort
	// inside lets go-cmp see into what this package keeps to itself.
	inside = cmp.Options{
		cmp.AllowUnexported(entry{}, tuple{}, flowKey{}, pairKey{}),
		cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}),
	}
)

// recorded returns a message that Linux 6.18 sent, from the fuzz target's seed
// corpus. Its capacity is its length, so that a look behind its end panics.
func recorded(t testing.TB, target, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "fuzz", target, name))
	if err != nil {
		t.Fatal(err)
	}
	_, quoted, _ := bytes.Cut(b, []byte("[]byte("))
	s, err := strconv.Unquote(string(bytes.TrimSuffix(bytes.TrimSpace(quoted), []byte(")"))))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return slices.Clip([]byte(s))
}

func recordedNames(t testing.TB, target string) []string {
	t.Helper()
	files, err := os.ReadDir(filepath.Join("testdata", "fuzz", target))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d recorded messages, %v", len(files), err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// payload makes what follows the netlink header.
func payload(t testing.TB, attrs ...netfilter.Attribute) []byte {
	t.Helper()
	m, err := netfilter.MarshalNetlink(netfilter.Header{SubsystemID: netfilter.NFSubsysCTNetlink, Family: netfilter.ProtoIPv4}, attrs)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clip(m.Data)
}

func attr(typ uint16, data ...byte) netfilter.Attribute {
	return netfilter.Attribute{Type: typ, Data: data}
}

func nest(typ uint16, children ...netfilter.Attribute) netfilter.Attribute {
	return netfilter.Attribute{Type: typ, Nested: true, Children: children}
}

// tupleAttr is a TCP tuple in a message.
func tupleAttr(typ uint16, src, dst string) netfilter.Attribute {
	s, d := addrPort(src), addrPort(dst)
	from, to := uint16(ctaIPv4Src), uint16(ctaIPv4Dst)
	if s.Addr().Is6() {
		from, to = ctaIPv6Src, ctaIPv6Dst
	}
	return nest(typ,
		nest(ctaTupleIP, attr(from, s.Addr().AsSlice()...), attr(to, d.Addr().AsSlice()...)),
		nest(ctaTupleProto, attr(ctaProtoNum, byte(TCP)),
			attr(ctaProtoSrcPort, netfilter.Uint16Bytes(s.Port())...),
			attr(ctaProtoDstPort, netfilter.Uint16Bytes(d.Port())...)))
}

// tuples are both of a flow from a client to a pod.
func tuples(more ...netfilter.Attribute) []netfilter.Attribute {
	return append([]netfilter.Attribute{
		tupleAttr(ctaTupleOrig, "192.168.10.20:40000", "10.96.0.10:80"),
		tupleAttr(ctaTupleReply, "10.244.1.7:8080", "192.168.10.20:40000"),
	}, more...)
}

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

func TestDecodeRecordedEvents(t *testing.T) {
	type event struct {
		Kind     eventKind
		State    string
		HasState bool
		Flags    [2]uint8
	}
	for name, want := range map[string]event{
		"new-tcp-syn-sent":        {eventNew, "SYN_SENT", true, [2]uint8{0x03, 0}},
		"update-tcp-syn-recv":     {eventUpdate, "SYN_RECV", true, [2]uint8{0x03, 0x23}},
		"update-tcp-established":  {eventUpdate, "ESTABLISHED", true, [2]uint8{0x23, 0x23}},
		"update-tcp-fin-wait":     {eventUpdate, "FIN_WAIT", true, [2]uint8{0x37, 0x23}},
		"update-tcp-last-ack":     {eventUpdate, "LAST_ACK", true, [2]uint8{0x27, 0x33}},
		"update-tcp-time-wait":    {eventUpdate, "TIME_WAIT", true, [2]uint8{0x27, 0x23}},
		"destroy-tcp-time-wait":   {eventDestroy, "TIME_WAIT", true, [2]uint8{}},
		"destroy-tcp-established": {eventDestroy, "ESTABLISHED", true, [2]uint8{}},
		"destroy-udp":             {Kind: eventDestroy},
		"new-sctp-established":    {eventNew, "ESTABLISHED", true, [2]uint8{}},
		"update-icmp":             {Kind: eventUpdate},
	} {
		t.Run(name, func(t *testing.T) {
			var got []event
			err := messages(recorded(t, "FuzzDecodeEvent", name), func(m message) error {
				var e entry
				kind, err := decodeEvent(m, &e)
				got = append(got, event{kind, stateName(e.proto, e.state, e.hasState), e.hasState, e.flags})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff([]event{want}, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDecodeOffloadedEntryIsOpen(t *testing.T) {
	for _, status := range []uint32{statusOffload, statusHwOffload} {
		var e entry
		b := payload(t, tuples(attr(ctaStatus, netfilter.Uint32Bytes(status|0xe)...))...)
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

func TestDecodeStatusOnlyUpdateHasNoState(t *testing.T) {
	b := payload(t, tuples(attr(ctaStatus, 0, 0, 0, 0xe), attr(ctaID, 0, 0, 0, 5))...)
	var e entry
	kind, err := decodeEvent(message{typ: msgNew, payload: b}, &e)
	if err != nil || kind != eventUpdate {
		t.Fatalf("kind %d, %v", kind, err)
	}
	if e.hasState || e.status != 0xe || e.id != 5 {
		t.Errorf("entry = %+v", e)
	}
}

func TestDecodeIgnoresWhatItDoesNotKnow(t *testing.T) {
	unknown := attr(99, 1, 2, 3)
	b := payload(t, append([]netfilter.Attribute{unknown},
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
	tcp := func(children ...netfilter.Attribute) []byte {
		return payload(t, tuples(nest(ctaProtoInfo, nest(ctaProtoInfoTCP, children...)))...)
	}
	tuple := func(children ...netfilter.Attribute) []byte {
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

func TestDecodeEventKinds(t *testing.T) {
	b := payload(t, tuples()...)
	for _, tt := range []struct {
		typ   netlink.HeaderType
		flags netlink.HeaderFlags
		want  eventKind
	}{
		{msgNew, netlink.Create | netlink.Excl, eventNew},
		{msgNew, netlink.Create, eventNew},
		{msgNew, 0, eventUpdate},
		{msgDelete, 0, eventDestroy},
		{msgGet, 0, 0},
		{0x0200, netlink.Create, 0}, // an expectation
		{netlink.Error, 0, 0},
	} {
		var e entry
		kind, err := decodeEvent(message{typ: tt.typ, flags: tt.flags, payload: b}, &e)
		if kind != tt.want || (kind == 0) != errors.Is(err, errMalformed) {
			t.Errorf("type %#x, flags %#x: kind %d, %v", tt.typ, tt.flags, kind, err)
		}
	}
}

func TestMessages(t *testing.T) {
	one := func(length uint32, b ...byte) []byte {
		m := binary.NativeEndian.AppendUint32(nil, length)
		return append(append(m, make([]byte, nlmsgHeaderLen-4)...), b...)
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want [][]byte
		ok   bool
	}{
		{"nothing", nil, nil, true},
		{"one", one(18, 1, 2), [][]byte{{1, 2}}, true},
		{"two, padded", append(one(18, 1, 2, 0, 0), one(16)...), [][]byte{{1, 2}, {}}, true},
		{"too short", one(15), nil, false},
		{"beyond the end", one(17), nil, false},
		{"rest", append(one(16), 1, 2, 3), [][]byte{{}}, false},
		{"length beyond 31 bits", one(1 << 31), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got [][]byte
			err := messages(slices.Clip(tt.b), func(m message) error {
				got = append(got, m.payload)
				return nil
			})
			if tt.ok != (err == nil) || !tt.ok && !errors.Is(err, errMalformed) {
				t.Errorf("err = %v", err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
