//go:build linux

package conntrack

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	tmconntrack "github.com/ti-mo/conntrack"
)

// The seed corpora below testdata/fuzz are messages that Linux 6.18 sent in a lab
// of package netlab.

func FuzzDecodeEntry(f *testing.F) {
	f.Add(payload(f, tuples(attr(ctaStatus, 0, 0, 0x40, 0xe))...)) // offloaded
	f.Fuzz(func(t *testing.T, b []byte) {
		b = slices.Clip(b)
		var e entry
		ok, err := e.decode(b, nil)
		if ok != (err == nil) {
			t.Fatalf("decoded %v, %v", ok, err)
		}
		asked := false
		var skipped entry
		skippedOK, _ := skipped.decode(b, func(e *entry) bool {
			asked = true
			if !e.orig.src.IsValid() || !e.reply.dst.IsValid() {
				t.Errorf("asked about %+v", e)
			}
			return false
		})
		if skippedOK || ok && !asked {
			t.Errorf("an unwanted flow: decoded %v, asked %v", skippedOK, asked)
		}
		if ok {
			appendGet(nil, e.key(), 1)
			agree(t, netlink.Header{Type: msgNew}, b, &e)
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		b = slices.Clip(b)
		_ = messages(b, func(m message) error {
			var e entry
			kind, err := decodeEvent(m, &e)
			if (kind == 0) != (err != nil) {
				t.Fatalf("kind %d, %v", kind, err)
			}
			if kind == 0 {
				return nil // one malformed message hides no others here
			}
			theirs := agree(t, netlink.Header{Type: m.typ, Flags: m.flags}, m.payload, &e)
			kinds := map[eventKind]any{
				eventNew: tmconntrack.EventNew, eventUpdate: tmconntrack.EventUpdate, eventDestroy: tmconntrack.EventDestroy,
			}
			if theirs != nil && kinds[kind] != any(theirs.Type) {
				t.Errorf("kind %d, theirs %d", kind, theirs.Type)
			}
			return nil
		})
	})
}

// agree compares what this package reads in a message with what ti-mo/conntrack
// reads, where that takes it. It returns nil where the two cannot be compared.
func agree(t *testing.T, h netlink.Header, payload []byte, ours *entry) *tmconntrack.Event {
	t.Helper()
	var theirs tmconntrack.Event
	if err := theirs.Unmarshal(netlink.Message{Header: h, Data: payload}); err != nil || ambiguous(payload) {
		return nil
	}
	if d := cmp.Diff(entryOf(theirs.Flow), *ours, inside, cmp.FilterPath(func(p cmp.Path) bool {
		return p.Last().String() == ".hasTimeout" || p.Last().String() == ".hasState" // they do not tell
	}, cmp.Ignore())); d != "" {
		t.Errorf("theirs -, ours +:\n%s", d)
	}
	return &theirs
}

// entryOf is a flow of ti-mo/conntrack as an entry.
func entryOf(f *tmconntrack.Flow) entry {
	side := func(t tmconntrack.Tuple) tuple {
		return tuple{
			src:  netip.AddrPortFrom(t.IP.SourceAddress, t.Proto.SourcePort),
			dst:  netip.AddrPortFrom(t.IP.DestinationAddress, t.Proto.DestinationPort),
			zone: t.Zone,
		}
	}
	e := entry{
		proto: Protocol(f.TupleReply.Proto.Protocol), zone: f.Zone, id: f.ID,
		orig: side(f.TupleOrig), reply: side(f.TupleReply),
		status: uint32(f.Status), timeout: f.Timeout, hasTimeout: f.Timeout != 0,
	}
	if tcp := f.ProtoInfo.TCP; tcp != nil {
		e.state, e.hasState = tcp.State, true
		e.flags = [2]uint8{uint8(tcp.OriginalFlags >> 8), uint8(tcp.ReplyFlags >> 8)}
	}
	if sctp := f.ProtoInfo.SCTP; sctp != nil {
		e.state, e.hasState = sctp.State, true
	}
	return e
}

// nested is where attributes hold attributes that are read, by type.
type nested map[uint16]nested

// ambiguous says that a message gives an attribute twice, or not the same
// protocol for both directions: it has no one right reading. Nor have attribute
// types beyond a byte, of which ti-mo/conntrack reads one byte.
func ambiguous(payload []byte) bool {
	sides := nested{ctaTupleIP: {}, ctaTupleProto: {}}
	protocols := make(map[byte]bool)
	var repeats func(b []byte, in nested) bool
	repeats = func(b []byte, in nested) bool {
		seen := make(map[uint16]bool)
		again := false
		_ = attributes(b, func(typ uint16, data []byte) (bool, error) {
			again = again || seen[typ] || typ > 0xff
			seen[typ] = true
			if inner, ok := in[typ]; ok {
				again = again || repeats(data, inner)
			}
			return true, nil
		})
		return again
	}
	if repeats(payload[nfgenmsgLen:], nested{
		ctaTupleOrig: sides, ctaTupleReply: sides,
		ctaProtoInfo: {ctaProtoInfoTCP: {}, ctaProtoInfoSCTP: {}},
	}) {
		return true
	}
	_ = attributes(payload[nfgenmsgLen:], func(typ uint16, data []byte) (bool, error) {
		if typ == ctaTupleOrig || typ == ctaTupleReply {
			var e entry
			var side tuple
			if err := e.decodeTuple(&side, data); err != nil {
				return false, err
			}
			protocols[byte(e.proto)] = true
		}
		return true, nil
	})
	return len(protocols) != 1
}
