package looks

import (
	"context"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
)

// A port that was listened on is forgotten when that is over and nobody waits: what the
// pod itself begins from that port is then no session.
func TestPortsThatNobodyListensOnAnyMore(t *testing.T) {
	t.Parallel()
	const accepted, outbound = "10.244.2.9:40000", "10.244.3.3:443"
	type look struct {
		listening bool
		waited    bool
		peers     []string
		counted   int
		listened  int
	}
	for _, tc := range []struct {
		name  string
		looks []look
	}{
		{"never again", []look{{true, false, nil, 0, 1}, {false, false, nil, 0, 0}, {false, false, []string{outbound}, 0, 0}}},
		{"forgotten with its last connection", []look{
			{true, false, []string{accepted}, 1, 1}, {false, false, []string{accepted}, 1, 1},
			{false, false, nil, 0, 0}, {false, false, []string{outbound}, 0, 0},
		}},
		{"one that is begun meanwhile keeps nothing", []look{
			{true, false, []string{accepted}, 1, 1}, {false, false, []string{accepted}, 1, 1},
			{false, false, []string{accepted, outbound}, 2, 1}, {false, false, []string{outbound}, 0, 0},
		}},
		{"accepted just before", []look{{true, false, nil, 0, 1}, {false, false, []string{accepted}, 1, 1}, {false, false, []string{accepted}, 1, 1}}},
		{"during a wait", []look{{true, true, nil, 0, 1}, {false, true, nil, 0, 1}, {false, true, []string{accepted}, 1, 1}}},
		{"at the beginning of a wait", []look{{true, false, nil, 0, 1}, {false, true, nil, 0, 1}, {false, true, []string{accepted}, 1, 1}}},
		{"after a wait", []look{{true, true, nil, 0, 1}, {false, true, nil, 0, 1}, {false, false, []string{outbound}, 0, 0}}},
		{"listened on again", []look{
			{true, false, nil, 0, 1}, {false, false, nil, 0, 0}, {true, false, []string{accepted}, 1, 1}, {false, false, []string{accepted}, 1, 1},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var now look
			l := Looker{Take: func(ctx context.Context) (sockdiag.Look, error) {
				n := 0
				s, err := server(0, &n, now.peers...)(ctx)
				if !now.listening {
					s.Listening = nil
				}
				s.Own = []netip.Addr{netip.MustParseAddr("10.244.1.7")}
				return s, err
			}}
			for i, want := range tc.looks {
				now = want
				s := l.look(t.Context(), want.waited)
				got := []int{len(s.Counted), len(s.Listened)}
				if diff := cmp.Diff([]int{want.counted, want.listened}, got); diff != "" {
					t.Errorf("look %d, counted and ports (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}
