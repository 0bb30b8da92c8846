package conntrack

import (
	"net/netip"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

const (
	benchTable    = 100_000
	benchSessions = 4_000
)

// benchNamespace is a table of 100k entries, of which 4,000 are of the pod.
func benchNamespace(b *testing.B) *netlab.Namespace {
	b.Helper()
	n, err := netlab.New()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = n.Close() })
	for addr, flows := range map[netip.Addr]int{pod4: benchSessions, other4: benchTable - benchSessions} {
		if err := netlab.Fill(n, inbound(addr, flows)); err != nil {
			b.Fatal(err)
		}
	}
	return n
}

func BenchmarkSnapshot(b *testing.B) {
	n := benchNamespace(b)
	for _, mode := range []SnapshotMode{Filter, Stream} {
		b.Run(mode.String(), func(b *testing.B) {
			b.ReportAllocs()
			r := NewReader(Config{NetNS: n.FD(), Snapshot: mode})
			for b.Loop() {
				if _, c, err := r.Sessions(b.Context(), Target{Addresses: []netip.Addr{pod4}}); err != nil || c.Open != benchSessions {
					b.Fatalf("%+v, %v", c, err)
				}
			}
		})
	}
}

// BenchmarkAsk asks again for 4,000 known flows.
func BenchmarkAsk(b *testing.B) {
	n := benchNamespace(b)
	var keys []flowKey
	for f := range inbound(pod4, benchSessions) {
		keys = append(keys, flowKey{proto: TCP, orig: tuple{src: f.Orig.Src, dst: f.Orig.Dst}})
	}
	a, err := newKernel(n.FD()).asker()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = a.close() }()
	b.ReportAllocs()
	for b.Loop() {
		found := 0
		if err := a.ask(keys, func(_ int, e *entry) {
			if e != nil {
				found++
			}
		}); err != nil || found != len(keys) {
			b.Fatalf("found %d, %v", found, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(len(keys))/float64(time.Microsecond), "us/flow")
}
