package conntrack

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
)

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
