//go:build linux

package conntrack

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

func TestFilteredDumpTellsExactlyTheAddress(t *testing.T) {
	n := newNamespace(t)
	own := func(addr netip.Addr, ports int) []netlab.Flow { // the address's own connections
		var flows []netlab.Flow
		for f := range inbound(other4, ports) {
			f.Orig.Src = netip.AddrPortFrom(addr, f.Orig.Src.Port())
			flows = append(flows, f)
		}
		return flows
	}
	serviced := through("10.96.0.10:80", flowOf(client4, pod4, 999))
	flows := slices.Concat(
		slices.Collect(inbound(pod4, 700)), specimens(pod4), []netlab.Flow{serviced}, own(pod4, 40),
		slices.Collect(inbound(client4.Prev(), 300)), own(pod4.Prev(), 30),
	)
	if n.HasIPv6() {
		flows = slices.Concat(flows, slices.Collect(inbound(pod6, 50)))
	}
	fill(t, n, slices.Values(flows))
	k := newKernel(n.FD())
	for _, dir := range []int{dirReply, dirOrig} {
		var want, got []string
		for _, f := range flows {
			reply := f.Reply
			if reply == (netlab.Tuple{}) {
				reply = f.Orig.Reversed()
			}
			if source := [2]netip.AddrPort{dirOrig: f.Orig.Src, dirReply: reply.Src}[dir]; source.Addr() == pod4 {
				want = append(want, name(keyOf(f)))
			}
		}
		must(t, k.dump(t.Context(), selection{source: pod4, dir: dir}, func(m message) error {
			var e entry
			_, err := e.decode(m.payload, nil)
			got = append(got, name(e.key()))
			return err
		}))
		slices.Sort(want)
		slices.Sort(got)
		if d := cmp.Diff(want, got); d != "" || len(want) < 40 {
			t.Errorf("direction %d, %d flows:\n%s", dir, len(want), d)
		}
	}
}

func name(k flowKey) string {
	return k.proto.String() + " " + k.orig.src.String() + " " + k.orig.dst.String()
}

func TestFilteredDumpOfIPv6IsRefused(t *testing.T) {
	n := newNamespace(t)
	err := newKernel(n.FD()).dump(t.Context(), selection{source: pod6}, func(message) error {
		t.Error("told something")
		return nil
	})
	if !errors.Is(err, errNoFilter) {
		t.Errorf("%v, want %v", err, errNoFilter)
	}
}
