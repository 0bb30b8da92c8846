package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSelections(t *testing.T) {
	v4 := func(n int) []wish {
		var wishes []wish
		a := addr("10.0.0.1")
		for range n {
			wishes, a = append(wishes, wish{addr: a}), a.Next()
		}
		return wishes
	}
	mixed := append(v4(1), wish{addr: addr("fd00::7")})
	both := []wish{{addr: pod, original: true}}
	for _, tt := range []struct {
		name   string
		mode   SnapshotMode
		wishes []wish
		count  int
		want   int // filtered walks, or 0 for one of everything
	}{
		{"one address", Auto, v4(1), 100_000, 1},
		{"one address, large table", Auto, v4(1), 200_000, 1},
		{"one address, larger table", Auto, v4(1), 200_001, 0},
		{"eight addresses", Auto, v4(8), 100_000, 8},
		{"nine addresses", Auto, v4(9), 100_000, 0},
		{"both directions", Auto, both, 100_000, 2},
		{"IPv6", Auto, mixed, 10, 0},
		{"filter, large table", Filter, v4(1), 1_000_000, 1},
		{"filter, many addresses", Filter, v4(50), 10, 50},
		{"filter, IPv6", Filter, mixed, 10, 0},
		{"stream", Stream, v4(1), 10, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.mode.selections(tt.wishes, tableSize{count: tt.count})
			if tt.want == 0 {
				if len(got) != 1 || got[0].source.IsValid() {
					t.Errorf("%+v, want one walk of everything", got)
				}
				return
			}
			if len(got) != tt.want || slices.ContainsFunc(got, func(s selection) bool { return !s.source.Is4() }) {
				t.Errorf("%+v, want %d filtered walks", got, tt.want)
			}
		})
	}
	want := []selection{{source: pod, dir: dirReply}, {source: pod, dir: dirOrig}}
	if d := cmp.Diff(want, Auto.selections(both, tableSize{}), cmp.AllowUnexported(selection{}), inside); d != "" {
		t.Error(d)
	}
}

// unruly is a kernel that does what the real one cannot be made to do on demand.
type unruly struct {
	kernel // anything else is not asked for
	sizes  []tableSize
	// dumps are the answers to one walk after another, the last for ever.
	dumps []dumpAnswer
	asked []selection
	flow  []byte // each flow that it tells
}

type dumpAnswer struct {
	flows int
	err   error
}

func (k *unruly) size() (tableSize, error) {
	s := k.sizes[0]
	if len(k.sizes) > 1 {
		k.sizes = k.sizes[1:]
	}
	return s, nil
}

func (k *unruly) dump(_ context.Context, s selection, each func(message) error) error {
	answer := k.dumps[min(len(k.asked), len(k.dumps)-1)]
	k.asked = append(k.asked, s)
	for range answer.flows {
		if err := each(message{typ: msgNew, payload: k.flow}); err != nil {
			return err
		}
	}
	return answer.err
}

func sizes(counts ...int) []tableSize {
	var s []tableSize
	for _, n := range counts {
		s = append(s, tableSize{count: n, buckets: 1024})
	}
	return s
}

func TestTake(t *testing.T) {
	resized := []tableSize{{1000, 1024}, {1000, 2048}}
	var always []tableSize
	for i := range 2 * walkTries {
		always = append(always, tableSize{1000, 1024 + i})
	}
	broken := errors.New("broken")
	const s, f = "stream", "filter"
	for _, tt := range []struct {
		name  string
		mode  SnapshotMode
		sizes []tableSize
		dumps []dumpAnswer
		walks []string
		err   error
	}{
		{"whole", Stream, sizes(1000), []dumpAnswer{{1000, nil}}, []string{s}, nil},
		{"filtered, few of many", Filter, sizes(1000), []dumpAnswer{{3, nil}}, []string{f}, nil},
		{"empty", Stream, sizes(0), []dumpAnswer{{0, nil}}, []string{s}, nil},
		{"resized once", Stream, resized, []dumpAnswer{{400, nil}, {1000, nil}}, []string{s, s}, nil},
		{"resized once, filtered", Filter, resized, []dumpAnswer{{1, nil}}, []string{f, f}, nil},
		{"the kernel says so", Stream, sizes(1000), []dumpAnswer{{400, fmt.Errorf("dump flows: %w", errResized)}, {1000, nil}}, []string{s, s}, nil},
		{"resized for ever", Stream, always, []dumpAnswer{{1000, nil}}, []string{s, s, s, s, s}, errResized},
		{"short once", Stream, sizes(1000), []dumpAnswer{{400, nil}, {1000, nil}}, []string{s, s}, nil},
		{"short: many have run out", Stream, sizes(1000), []dumpAnswer{{400, nil}}, []string{s, s}, nil},
		{"a little short: churn", Stream, sizes(1000), []dumpAnswer{{890, nil}}, []string{s}, nil},
		{"more than before: churn", Stream, sizes(1000, 5000), []dumpAnswer{{1000, nil}}, []string{s}, nil},
		{"fewer than before: churn", Stream, sizes(5000, 1000), []dumpAnswer{{1000, nil}}, []string{s}, nil},
		{"no filter", Filter, sizes(1000), []dumpAnswer{{0, errNoFilter}, {1000, nil}}, []string{f, s}, nil},
		{"no filter, and short", Filter, sizes(1000), []dumpAnswer{{0, errNoFilter}, {400, nil}, {0, errNoFilter}, {400, nil}}, []string{f, s, f, s}, nil},
		{"an error", Stream, sizes(1000), []dumpAnswer{{5, broken}}, []string{s}, broken},
		{"lost in the middle", Stream, sizes(1000), []dumpAnswer{{5, errOverflow}}, []string{s}, errOverflow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := &unruly{sizes: tt.sizes, dumps: tt.dumps, flow: payload(t, tuples()...)}
			applied := 0
			snapshot := take{
				kernel: k, mode: tt.mode, wishes: []wish{{addr: pod}},
				wanted: func(e *entry) bool { return e.reply.src.Addr() == pod },
				apply:  func(es []entry, _, _ time.Time) { applied += len(es) },
			}
			if err := snapshot.run(t.Context()); !errors.Is(err, tt.err) {
				t.Errorf("%v, want %v", err, tt.err)
			}
			var walks []string
			for _, a := range k.asked {
				walks = append(walks, map[bool]string{true: f, false: s}[a.source.IsValid()])
			}
			if d := cmp.Diff(tt.walks, walks); d != "" {
				t.Error(d)
			}
			told := 0
			for i := range k.asked {
				told += tt.dumps[min(i, len(tt.dumps)-1)].flows
			}
			if applied != told {
				t.Errorf("applied %d of %d flows", applied, told)
			}
		})
	}
}

func TestTakeMatchesAgain(t *testing.T) {
	// A kernel that ignores the filter tells the flows of others, too.
	k := &unruly{sizes: sizes(10), dumps: []dumpAnswer{{10, nil}}, flow: payload(t, tuples()...)}
	snapshot := take{
		kernel: k, mode: Filter, wishes: []wish{{addr: addr("10.244.1.8")}},
		wanted: func(e *entry) bool { return e.reply.src.Addr() == addr("10.244.1.8") },
		apply:  func(es []entry, _, _ time.Time) { t.Errorf("applied %+v", es) },
	}
	if err := snapshot.run(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTakeRefusesMalformedMessages(t *testing.T) {
	k := &unruly{sizes: sizes(10), dumps: []dumpAnswer{{10, nil}}, flow: []byte{2, 0, 0, 0, 1}}
	snapshot := take{kernel: k, mode: Stream, wishes: []wish{{addr: netip.Addr{}}}, wanted: func(*entry) bool { return true }}
	if err := snapshot.run(t.Context()); !errors.Is(err, errMalformed) {
		t.Errorf("%v, want %v", err, errMalformed)
	}
}
