//go:build linux

package conntrack

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// ear is a listener behind the filter for some addresses.
type ear struct {
	listener
	t *testing.T
}

func listen(t *testing.T, n *netlab.Namespace, addrs ...netip.Addr) ear {
	t.Helper()
	filter, err := eventFilter(addrs)
	must(t, err)
	l, err := newKernel(n.FD()).listen(filter)
	must(t, err)
	t.Cleanup(func() { check(t, l.close()) })
	return ear{l, t}
}

// until returns the flows of all events up to that of the last one.
func (l ear) until(last netlab.Flow) []flowKey {
	l.t.Helper()
	giveUp := time.AfterFunc(patience, func() { _ = l.close() })
	defer giveUp.Stop()
	var heard []flowKey
	for len(heard) == 0 || heard[len(heard)-1] != keyOf(last) {
		err := l.receive(func(m message) error {
			var e entry
			_, err := decodeEvent(m, &e)
			heard = append(heard, e.key())
			return err
		})
		if err != nil {
			l.t.Fatalf("%v after %d events", err, len(heard))
		}
	}
	return heard
}

func keysOf(flows []netlab.Flow) []flowKey {
	var keys []flowKey
	for _, f := range flows {
		keys = append(keys, keyOf(f))
	}
	return keys
}

// flowOf has the two addresses as the sources of its tuples.
func flowOf(client, server netip.Addr, port uint16) netlab.Flow {
	return inboundFlow(server, client, port, 0)
}

// through is a flow that was translated: only its reply has the server.
func through(service string, f netlab.Flow) netlab.Flow {
	f.Reply = f.Orig.Reversed()
	f.Orig.Dst = netip.MustParseAddrPort(service)
	return f
}

func TestEventFilterOnTheKernel(t *testing.T) {
	n := newNamespace(t)
	pods := []netip.Addr{pod4, pod4.Next().Next()}
	ours := []netlab.Flow{
		flowOf(client4, pods[0], 1),
		flowOf(client4, pods[1], 2),
		through("10.96.0.10:80", flowOf(client4, pods[0], 3)),
		flowOf(pods[1], other4, 4), // the pod's own
		flowOf(pods[0], pods[1], 5),
		{Protocol: uint8(UDP), Orig: netlab.Tuple{Src: netip.AddrPortFrom(client4, 6), Dst: netip.AddrPortFrom(pods[0], 53)}},
		{Protocol: uint8(SCTP), Zone: 4, Orig: netlab.Tuple{Src: netip.AddrPortFrom(client4, 7), Dst: netip.AddrPortFrom(pods[0], 53)}},
	}
	theirs := []netlab.Flow{
		flowOf(client4, other4, 1),
		flowOf(other4, client4, 2),
		// The pod's address as a destination alone is somebody else's translation.
		through("10.99.0.2:80", flowOf(client4, other4, 3)),
	}
	if n.HasIPv6() {
		pods = append(pods, pod6, pod6.Next().Next())
		ours = append(ours,
			flowOf(client6, pods[2], 1),
			flowOf(pods[3], other6, 2),
			through("[fd96::10]:80", flowOf(client6, pods[3], 3)))
		theirs = append(theirs,
			flowOf(client6, other6, 1),
			flowOf(client6, netip.MustParseAddr("fd99::2:0:2"), 2), // the same first and last words
			flowOf(client6, netip.MustParseAddr("fd99:0:0:1::2"), 3))
	}
	filtered, all := listen(t, n, pods...), listen(t, n, everyone(t)...)
	mixed := slices.Concat(theirs, ours[:3], theirs[:0], ours[3:])
	fill(t, n, slices.Values(mixed))
	last := ours[len(ours)-1]
	if d := cmp.Diff(keysOf(ours), filtered.until(last), inside); d != "" {
		t.Errorf("heard of new flows:\n%s", d)
	}
	if d := cmp.Diff(keysOf(mixed), all.until(last), inside); d != "" {
		t.Errorf("without a filter:\n%s", d)
	}
	for _, f := range mixed { // events of their end
		must(t, netlab.Delete(n, f))
	}
	if d := cmp.Diff(keysOf(ours), filtered.until(last), inside); d != "" {
		t.Errorf("heard of ended flows:\n%s", d)
	}
}

// everyone is so many addresses that the program would be too long.
func everyone(t *testing.T) []netip.Addr {
	t.Helper()
	addrs := series(netip.MustParseAddr("fd00::1"), 300)
	filter, err := eventFilter(addrs)
	must(t, err)
	if len(filter) != 1 {
		t.Fatalf("a program of %d instructions, want the one that accepts all", len(filter))
	}
	return addrs
}

func series(a netip.Addr, n int) []netip.Addr {
	var addrs []netip.Addr
	for range n {
		addrs, a = append(addrs, a), a.Next()
	}
	return addrs
}

func TestEventFilterOfManyAddresses(t *testing.T) {
	n := newNamespace(t)
	for name, addrs := range map[string][]netip.Addr{
		"300 of IPv4":          series(netip.MustParseAddr("10.99.1.1"), 300),
		"60 of IPv6":           series(netip.MustParseAddr("fd99::1:1"), 60),
		"30 of each":           append(series(netip.MustParseAddr("10.99.1.1"), 30), series(netip.MustParseAddr("fd99::1:1"), 30)...),
		"one":                  {netip.MustParseAddr("10.99.1.1")},
		"one of IPv6":          {netip.MustParseAddr("fd99::1:1")},
		"the top of each word": {netip.MustParseAddr("255.255.255.254"), netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe")},
	} {
		t.Run(name, func(t *testing.T) {
			var ours, mixed []netlab.Flow
			for i, a := range addrs {
				client, other := client4, other4
				if a.Is6() {
					client, other = client6, other6
				}
				if a.Is6() && !n.HasIPv6() {
					continue
				}
				f := flowOf(client, a, uint16(1000+i))
				ours = append(ours, f)
				mixed = append(mixed, flowOf(client, other, uint16(1000+i)), f)
			}
			if len(ours) == 0 {
				return
			}
			l := listen(t, n, addrs...)
			fill(t, n, slices.Values(mixed))
			if d := cmp.Diff(keysOf(ours), l.until(ours[len(ours)-1]), inside); d != "" {
				t.Error(d)
			}
			must(t, netlab.Flush(n))
		})
	}
}

// The kernel refuses a program for which net.core.optmem_max is too small, and
// charges the present one together with the one that replaces it.
func TestEventFilterWithoutRoomHearsEverybody(t *testing.T) {
	n := newNamespace(t)
	l := listen(t, n, series(netip.MustParseAddr("10.99.1.1"), 1000)...)
	for i, many := range [][]netip.Addr{
		series(netip.MustParseAddr("fd99::1:1"), 220),
		series(netip.MustParseAddr("10.99.1.1"), 1000),
	} {
		filter, err := eventFilter(append(many, pod4))
		must(t, err)
		if len(filter) < 3500 {
			t.Fatalf("a program of %d instructions, want a long one", len(filter))
		}
		must(t, l.setFilter(filter))
		f := flowOf(client4, pod4, uint16(20+i))
		fill(t, n, slices.Values([]netlab.Flow{flowOf(client4, other4, uint16(20+i)), f}))
		l.until(f)
	}
	filter, err := eventFilter([]netip.Addr{pod4})
	must(t, err)
	must(t, l.setFilter(filter))
	f := flowOf(client4, pod4, 30)
	fill(t, n, slices.Values([]netlab.Flow{flowOf(client4, other4, 30), f}))
	if d := cmp.Diff([]flowKey{keyOf(f)}, l.until(f), inside); d != "" {
		t.Errorf("a short filter again:\n%s", d)
	}
}

func TestEventFilterCanBeChanged(t *testing.T) {
	n := newNamespace(t)
	l := listen(t, n) // nobody: nothing is heard
	fill(t, n, slices.Values([]netlab.Flow{flowOf(client4, pod4, 1)}))
	for i, a := range []netip.Addr{pod4, other4} {
		filter, err := eventFilter([]netip.Addr{a})
		must(t, err)
		must(t, l.setFilter(filter))
		port := uint16(10 + i)
		fill(t, n, slices.Values([]netlab.Flow{flowOf(client4, pod4, port), flowOf(client4, other4, port)}))
		want := []flowKey{keyOf(flowOf(client4, a, port))}
		if d := cmp.Diff(want, l.until(flowOf(client4, a, port)), inside); d != "" {
			t.Errorf("for %s:\n%s", a, d)
		}
	}
}
