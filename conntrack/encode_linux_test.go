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

// answers asks the kernel for all keys and returns what it said to each.
func answers(t *testing.T, n *netlab.Namespace, keys []flowKey) []*entry {
	t.Helper()
	a, err := newKernel(n.FD()).asker()
	must(t, err)
	defer func() { must(t, a.close()) }()
	got := make([]*entry, len(keys))
	times := make([]int, len(keys))
	must(t, a.ask(keys, func(i int, e *entry) {
		times[i]++
		if e != nil {
			told := *e
			got[i] = &told
		}
	}))
	for i, n := range times {
		if n != 1 {
			t.Fatalf("%d answers to question %d", n, i)
		}
	}
	return got
}

func keyOf(f netlab.Flow) flowKey {
	return flowKey{proto: Protocol(f.Protocol), zone: f.Zone, orig: tuple{src: f.Orig.Src, dst: f.Orig.Dst}}
}

func TestAskFindsExactlyTheFlow(t *testing.T) {
	n := newNamespace(t)
	flows := slices.Concat(specimens(pod4), slices.Collect(inbound(pod4, 10)))
	if n.HasIPv6() {
		flows = slices.Concat(flows, specimens(pod6), slices.Collect(inbound(pod6, 10)))
	}
	// The same tuple in two zones, to two servers.
	zoned := slices.Collect(inbound(pod4, 1))[0]
	zoned.Zone = 3
	zoned.Reply = netlab.Tuple{Src: netip.AddrPortFrom(other4, 8080), Dst: zoned.Orig.Src}
	flows = append(flows, zoned)
	fill(t, n, slices.Values(flows))

	keys := []flowKey{createTupleZone(t, n, pod4)}
	for _, f := range flows {
		keys = append(keys, keyOf(f))
	}
	for i, e := range answers(t, n, keys) {
		if e == nil {
			t.Errorf("%+v not found", keys[i])
			continue
		}
		if d := cmp.Diff(keys[i], e.key(), inside); d != "" {
			t.Error(d)
		}
	}
	if e := answers(t, n, []flowKey{keyOf(zoned)})[0]; e == nil || e.reply.src.Addr() != other4 {
		t.Errorf("in zone 3: %+v, want the entry of that zone", e)
	}

	absent := map[string]func(k *flowKey){
		"port":       func(k *flowKey) { k.orig.src = netip.AddrPortFrom(k.orig.src.Addr(), 1) },
		"address":    func(k *flowKey) { k.orig.dst = netip.AddrPortFrom(other4, 8080) },
		"protocol":   func(k *flowKey) { k.proto = UDP },
		"zone":       func(k *flowKey) { k.zone = 77 },
		"tuple zone": func(k *flowKey) { k.orig.zone = 77 },
	}
	for name, change := range absent {
		k := keyOf(slices.Collect(inbound(pod4, 2))[1])
		change(&k)
		if e := answers(t, n, []flowKey{k})[0]; e != nil {
			t.Errorf("another %s: %+v, want no such entry", name, e)
		}
	}
}

func TestAskManyBatches(t *testing.T) {
	n := newNamespace(t)
	fill(t, n, inbound(pod4, 3000))
	var keys []flowKey
	for f := range inbound(pod4, 5000) {
		keys = append(keys, keyOf(f))
	}
	// What is there and what is not, mixed.
	slices.SortFunc(keys, func(a, b flowKey) int {
		return int(a.orig.src.Port()*40503) - int(b.orig.src.Port()*40503)
	})
	for i, e := range answers(t, n, keys) {
		there := keys[i].orig.src.Port() < 1024+3000
		if (e != nil) != there || e != nil && e.key() != keys[i] {
			t.Fatalf("asked for %+v, answered %+v", keys[i], e)
		}
	}
	if got := answers(t, n, nil); len(got) != 0 {
		t.Errorf("no question, answered %v", got)
	}
}

func TestAskGoesOnAfterAnError(t *testing.T) {
	n := newNamespace(t)
	fill(t, n, inbound(pod4, 2))
	a, err := newKernel(n.FD()).asker()
	must(t, err)
	defer func() { must(t, a.close()) }()
	keys := slices.Collect(inbound(pod4, 2))
	// A tuple zone beside a zone is not allowed: EINVAL, in the middle of a batch.
	bad := keyOf(keys[0])
	bad.zone, bad.orig.zone = 3, 4
	batch := []flowKey{keyOf(keys[0]), bad, keyOf(keys[1])}
	if err := a.ask(batch, func(int, *entry) {}); err == nil || errors.Is(err, errMalformed) {
		t.Fatalf("asked what cannot be asked: %v", err)
	}
	// What was left unread of that batch answers no later question.
	must(t, a.ask([]flowKey{keyOf(keys[1])}, func(i int, e *entry) {
		if i != 0 || e == nil || e.key() != keyOf(keys[1]) {
			t.Errorf("answer %d: %+v", i, e)
		}
	}))
}
