package conntrack

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mdlayher/netlink"
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
func payload(t testing.TB, attrs ...netlink.Attribute) []byte {
	t.Helper()
	b, err := netlink.MarshalAttributes(attrs)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clip(slices.Concat([]byte{2, 0, 0, 0}, b))
}

func attr(typ uint16, data ...byte) netlink.Attribute {
	return netlink.Attribute{Type: typ, Data: data}
}

func nest(typ uint16, children ...netlink.Attribute) netlink.Attribute {
	b, err := netlink.MarshalAttributes(children)
	if err != nil {
		panic(err) // longer than an attribute can be
	}
	return netlink.Attribute{Type: typ | nlaNested, Data: b}
}

func number[T uint16 | uint32](typ uint16, v T) netlink.Attribute {
	if v, ok := any(v).(uint16); ok {
		return attr(typ, binary.BigEndian.AppendUint16(nil, v)...)
	}
	return attr(typ, binary.BigEndian.AppendUint32(nil, uint32(v))...)
}

// tupleAttr is a TCP tuple in a message.
func tupleAttr(typ uint16, src, dst string) netlink.Attribute {
	s, d := addrPort(src), addrPort(dst)
	from, to := uint16(ctaIPv4Src), uint16(ctaIPv4Dst)
	if s.Addr().Is6() {
		from, to = ctaIPv6Src, ctaIPv6Dst
	}
	return nest(typ,
		nest(ctaTupleIP, attr(from, s.Addr().AsSlice()...), attr(to, d.Addr().AsSlice()...)),
		nest(ctaTupleProto, attr(ctaProtoNum, byte(TCP)),
			number(ctaProtoSrcPort, s.Port()),
			number(ctaProtoDstPort, d.Port())))
}

// tuples are both of a flow from a client to a pod.
func tuples(more ...netlink.Attribute) []netlink.Attribute {
	return append([]netlink.Attribute{
		tupleAttr(ctaTupleOrig, "192.168.10.20:40000", "10.96.0.10:80"),
		tupleAttr(ctaTupleReply, "10.244.1.7:8080", "192.168.10.20:40000"),
	}, more...)
}
