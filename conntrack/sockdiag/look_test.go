package sockdiag

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// byValue lets cmp look into addresses.
var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

func TestCounted(t *testing.T) {
	t.Parallel()
	socket := func(local, peer string, state State, queue uint32) Socket {
		return Socket{Local: netip.MustParseAddrPort(local), Peer: netip.MustParseAddrPort(peer), State: state, SendQueue: queue}
	}
	const pod, pod6, client = "10.244.1.7:8080", "[fd00::7]:8080", "192.168.10.20:40000"
	for _, tt := range []struct {
		name   string
		socket Socket
		scope  Scope
		want   bool
	}{
		{name: "established", socket: socket(pod, client, Established, 0), want: true},
		{name: "established, IPv6", socket: socket(pod6, "[fd00::20]:40000", Established, 0), want: true},
		{name: "client closed first", socket: socket(pod, client, CloseWait, 0), want: true},
		{name: "closed, data not acknowledged", socket: socket(pod, client, FinWait1, 2), want: true},
		{name: "closed, only the FIN not acknowledged", socket: socket(pod, client, FinWait1, 1)},
		{name: "closed by both, data not acknowledged", socket: socket(pod, client, LastAck, 2_800_000), want: true},
		{name: "closed by both, only the FIN not acknowledged", socket: socket(pod, client, LastAck, 1)},
		{name: "closed at the same time, data not acknowledged", socket: socket(pod, client, Closing, 2), want: true},
		{name: "closed at the same time, only the FIN", socket: socket(pod, client, Closing, 1)},
		{name: "FIN acknowledged", socket: socket(pod, client, FinWait2, 5)},
		{name: "over", socket: socket(pod, client, TimeWait, 5)},
		{name: "opening", socket: socket(pod, client, SynRecv, 0)},
		{name: "outbound", socket: socket("10.244.1.7:41000", "192.168.10.20:5432", Established, 9)},
		{name: "proxy's pool on loopback", socket: socket("127.0.0.1:8080", "127.0.0.1:50000", Established, 0)},
		{name: "loopback peer of another number", socket: socket("10.244.1.7:8080", "127.0.0.6:50000", Established, 0)},
		{name: "loopback peer, IPv6", socket: socket("[::1]:8080", "[::1]:50000", Established, 0)},
		{name: "own address as the peer", socket: socket(pod, "10.244.1.7:50000", Established, 0)},
		{name: "own IPv6 address as the peer", socket: socket(pod6, "[fd00::7]:50000", Established, 0)},

		{name: "named port", socket: socket(pod, client, Established, 0), scope: Scope{Ports: []uint16{9000, 8080}}, want: true},
		{name: "another port is named", socket: socket(pod, client, Established, 0), scope: Scope{Ports: []uint16{9000}}},
		{name: "named port that nothing listens on any more", socket: socket("10.244.1.7:9000", client, Established, 0), scope: Scope{Ports: []uint16{9000}}, want: true},
		{name: "nothing listens any more", socket: socket("10.244.1.7:9000", client, Established, 0)},
		{name: "listened in an earlier look", socket: socket("10.244.1.7:9000", client, Established, 0), scope: Scope{Listened: []uint16{9000}}, want: true},
		{name: "named address", socket: socket(pod, client, Established, 0), scope: Scope{Addresses: []netip.Addr{netip.MustParseAddr("::ffff:10.244.1.7")}}, want: true},
		{name: "another address is named", socket: socket(pod, client, Established, 0), scope: Scope{Addresses: []netip.Addr{netip.MustParseAddr("fd00::7")}}},
		{name: "the caller's own port", socket: socket(pod, client, Established, 0), scope: Scope{Except: []uint16{8080}}},
		{name: "the caller's own port is named as well", socket: socket(pod, client, Established, 0), scope: Scope{Ports: []uint16{8080}, Except: []uint16{8080}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var l Look
			l.add(answer{Socket: Socket{Local: netip.MustParseAddrPort("[::]:8080"), State: Listen}})
			l.add(answer{Socket: Socket{Local: netip.MustParseAddrPort("0.0.0.0:8080"), State: Listen}})
			l.add(answer{Socket: Socket{Local: netip.MustParseAddrPort("127.0.0.1:22"), State: Listen}})
			l.add(answer{Socket: tt.socket})
			l.finish([]netip.Addr{netip.MustParseAddr("fd00::7"), netip.MustParseAddr("::ffff:10.244.1.7"), netip.MustParseAddr("127.0.0.1")})
			if diff := cmp.Diff([]uint16{22, 8080}, l.Listening); diff != "" {
				t.Errorf("listening (-want +got):\n%s", diff)
			}
			var want []Socket
			if tt.want {
				want = []Socket{tt.socket}
			}
			if diff := cmp.Diff(want, l.Counted(tt.scope), byValue); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
		})
	}
}
