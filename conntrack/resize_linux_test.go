//go:build resize

package conntrack

import (
	"net/netip"
	"testing"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// Fact 5, P22: the kernel loses and repeats entries of a dump without a word when
// the table is resized under it. The snapshot is taken again, and is right.
//
// This resizes the machine's one table: it runs alone, and needs root in the
// initial network namespace.
func TestFact5ResizeInTheMiddleOfASnapshot(t *testing.T) {
	_, buckets, err := netlab.TableSize()
	must(t, err)
	restore, err := netlab.RaiseTable(0, 0)
	must(t, err)
	defer func() { check(t, restore()) }()

	const flows = 30_000
	n := newNamespace(t)
	fill(t, n, inbound(pod4, flows))
	for _, mode := range []SnapshotMode{Stream, Filter} {
		r, k := newFaultyReader(n)
		r.mode = mode
		told := 0
		k.onDump = func() {
			if told++; told == flows/10 {
				must(t, netlab.ResizeTable(0, buckets/2))
			}
		}
		w := watch(t, r, Target{Addresses: []netip.Addr{pod4}})
		counts(t, w, flows, 0, 0)
		if told <= flows {
			t.Errorf("%s: %d flows told, want a second walk", mode, told)
		}
		must(t, w.Close())
		must(t, netlab.ResizeTable(0, buckets))
	}
}
