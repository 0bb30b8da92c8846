package sockdiag

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// message is an answer of the kernel with a timer attribute after it.
func message(family uint8, state State, local, peer netip.AddrPort, recv, send, inode uint32) []byte {
	b := make([]byte, messageSize+8)
	b[familyAt], b[stateAt] = family, byte(state)
	put := func(portAt, addrAt int, a netip.AddrPort) {
		b[portAt], b[portAt+1] = byte(a.Port()>>8), byte(a.Port())
		copy(b[addrAt:addrAt+16], a.Addr().AsSlice())
	}
	put(localPortAt, localAddrAt, local)
	put(peerPortAt, peerAddrAt, peer)
	binary.NativeEndian.PutUint32(b[recvQueueAt:], recv)
	binary.NativeEndian.PutUint32(b[sendQueueAt:], send)
	binary.NativeEndian.PutUint32(b[inodeAt:], inode)
	return b
}

func TestDecode(t *testing.T) {
	t.Parallel()
	var (
		v4     = netip.MustParseAddrPort("10.244.1.7:8080")
		peer4  = netip.MustParseAddrPort("192.168.10.20:40000")
		v6     = netip.MustParseAddrPort("[fd00::7]:8080")
		peer6  = netip.MustParseAddrPort("[fd00::20]:40000")
		mapped = netip.MustParseAddrPort("[::ffff:10.244.1.7]:8080")
		mpeer  = netip.MustParseAddrPort("[::ffff:192.168.10.20]:40000")
	)
	for _, tt := range []struct {
		name string
		b    []byte
		want Socket
	}{
		{"IPv4", message(familyIPv4, Established, v4, peer4, 1, 2, 3), Socket{v4, peer4, Established, 1, 2, 3}},
		{"IPv6", message(familyIPv6, CloseWait, v6, peer6, 0, 1<<31, 4), Socket{v6, peer6, CloseWait, 0, 1 << 31, 4}},
		{"IPv4 on a dual-stack socket", message(familyIPv6, LastAck, mapped, mpeer, 0, 1, 0), Socket{v4, peer4, LastAck, 0, 1, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := decode(tt.b)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, byValue); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := decode(make([]byte, messageSize-1)); !errors.Is(err, errShort) {
		t.Errorf("short message: %v, want %v", err, errShort)
	}
	if _, err := decode(message(1, Established, v4, peer4, 0, 0, 0)); err == nil {
		t.Error("a Unix socket was decoded")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, messageSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decode(b)
		if err != nil {
			if diff := cmp.Diff(Socket{}, s, byValue); diff != "" {
				t.Errorf("an error came with a socket:\n%s", diff)
			}
			return
		}
		for _, a := range []netip.Addr{s.Local.Addr(), s.Peer.Addr()} {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Errorf("address %q is not plain", a)
			}
		}
		if s.State.String() == "" {
			t.Errorf("state %d has no name", s.State)
		}
		var l Look
		l.add(answer{Socket: s})
		l.finish(nil)
		if n := len(l.Counted(Scope{Listened: []uint16{s.Local.Port()}})); n > 1 || n == 1 && s.State == Listen {
			t.Errorf("%v counted %d times", s, n)
		}
	})
}
