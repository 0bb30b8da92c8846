package conntrack

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// Others are the clients of TCP that have an entry and are no session: those of another
// port, and of a port that the reporter listens on itself.
func TestOthers(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	must(t, n.Track())
	client := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(client4, port) }
	fill(t, n, func(yield func(netlab.Flow) bool) {
		for i, port := range []uint16{8080, 9090, 10942} {
			f := inboundFlow(pod4, client4, uint16(5000+i), 0)
			f.Orig.Dst = netip.AddrPortFrom(pod4, port)
			if !yield(f) {
				return
			}
		}
	})
	w := watch(t, newReader(n), Target{Addresses: []netip.Addr{pod4}, Ports: []uint16{8080, 10942}})
	counts(t, w, 2, 0, 0)
	others := func() []netip.AddrPort {
		all := w.Others()
		slices.SortFunc(all, netip.AddrPort.Compare)
		return all
	}
	compare := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	if diff := cmp.Diff([]netip.AddrPort{client(5001)}, others(), compare); diff != "" {
		t.Errorf("others (-want +got):\n%s", diff)
	}
	w.Report(SocketReport{At: time.Now(), Own: []uint16{10942}, Truncated: true})
	if diff := cmp.Diff([]netip.AddrPort{client(5001), client(5002)}, others(), compare); diff != "" {
		t.Errorf("others, with the reporter's own (-want +got):\n%s", diff)
	}
}
