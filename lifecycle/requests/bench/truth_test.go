//go:build linux

package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	start      = time.Unix(1000, 0)
	someClient = netip.MustParseAddrPort("10.88.0.1:40000")
)

func at(milliseconds int) time.Time { return start.Add(time.Duration(milliseconds) * ms) }

// said is what is known at a moment.
type said struct {
	State state
	Pause time.Duration
}

func TestWhatIsKnownOfALook(t *testing.T) {
	t.Parallel()
	first := request{client: someClient, begin: at(0), sent: at(1), began: at(12), last: at(500), end: at(515)}
	second := request{client: someClient, begin: at(1000), sent: at(1001), began: at(1012)} // never answered
	for _, tt := range []struct {
		name     string
		direct   bool
		requests []request
		look     int
		want     said
	}{
		{"before its server has it", false, []request{first, second}, 25, said{unclear, 0}},
		{"in flight", false, []request{first, second}, 32, said{inFlight, 0}},
		{"sent, over a link without delay", true, []request{first, second}, 25, said{inFlight, 0}},
		{"just before its last write", false, []request{first, second}, 481, said{unclear, 0}},
		{"between its last write and its end", false, []request{first, second}, 510, said{unclear, 0}},
		{"just after its end", false, []request{first, second}, 534, said{unclear, 0}},
		{"in the pause", false, []request{first, second}, 536, said{pausing, 485 * ms}},
		{"just before the next", false, []request{first, second}, 981, said{unclear, 0}},
		{"a request without an end", false, []request{first, second}, 9000, said{inFlight, 0}},
		{"after the last request", false, []request{first}, 2000, said{unclear, 0}},
		{"answered, and the server has not told", true,
			[]request{{client: someClient, begin: at(0), sent: at(1), end: at(500)}, second}, 200, said{unclear, 0}},
		{"failed", true, []request{{client: someClient, begin: at(0), sent: at(1), failed: true}, second}, 200, said{unclear, 0}},
		{"answered before it was complete", true,
			[]request{{client: someClient, begin: at(0), sent: at(1), began: at(2), last: at(3), body: at(400), end: at(401)}, second}, 200, said{inFlight, 0}},
		{"two at a time, of which one is over", false, []request{
			{client: someClient, begin: at(0), sent: at(0), began: at(0), last: at(900), end: at(910)},
			{client: someClient, begin: at(100), sent: at(100), began: at(100), last: at(110), end: at(111)}, second,
		}, 300, said{inFlight, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			known := newTruth(tt.direct)
			for i := range tt.requests {
				known.requests[uint64(i)] = &tt.requests[i]
			}
			s, pause := known.lives()[someClient].at(at(tt.look), at(tt.look))
			if diff := cmp.Diff(tt.want, said{s, pause}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	got := merge([]interval{{at(50), at(60)}, {at(0), at(20)}, {at(10), at(30)}, {at(55), time.Time{}}, {at(70), at(80)}})
	want := []interval{{at(0), at(30)}, {at(50), time.Time{}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(interval{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What servers note reaches the request that it is about, with its time.
func TestWhatServersNote(t *testing.T) {
	t.Parallel()
	type noted struct {
		ID   uint64
		What moment
	}
	for _, tt := range []struct {
		name string
		read func(noter, string) error
		line string
		want []noted
		fail bool
	}{
		{"Node.js and gunicorn", noteLine, "b 089000000012 123456789", []noted{{89000000012, began}}, false},
		{"the last write", noteLine, "l 1 123456789", []noted{{1, last}}, false},
		{"something else", noteLine, "hello", nil, true},
		{"nginx", noteAccess, "010000000012 1764478000.123 1.500", []noted{{10000000012, began}, {10000000012, last}}, false},
		{"a request of nobody's", noteAccess, "- 1764478000.123 0.000", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []noted
			err := tt.read(func(id uint64, what moment, _ time.Time) { got = append(got, noted{id, what}) }, tt.line)
			if (err != nil) != tt.fail {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
