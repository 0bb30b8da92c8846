package hook

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

func socket(local, peer string) sockdiag.Socket {
	return sockdiag.Socket{
		State: sockdiag.Established, Local: netip.MustParseAddrPort(local), Peer: netip.MustParseAddrPort(peer),
	}
}

// sees always sees the same.
func sees(l sockdiag.Look) func(context.Context) (sockdiag.Look, error) {
	return func(context.Context) (sockdiag.Look, error) {
		l.At = time.Now()
		return l, nil
	}
}

// pod is a mesh's: its proxy has a client, an own connection out, and a pool to the
// application on loopback.
var pod = sockdiag.Look{
	Listening: []uint16{8080, 10942, 15006},
	Own:       []netip.Addr{netip.MustParseAddr("10.244.1.7"), netip.MustParseAddr("127.0.0.1")},
	Sockets: []sockdiag.Socket{
		socket("10.244.1.7:15006", "10.244.2.9:40000"),
		socket("127.0.0.1:8080", "127.0.0.1:50000"), socket("127.0.0.1:50000", "127.0.0.1:8080"),
		socket("10.244.1.7:8080", "10.244.1.7:50001"),
		socket("10.244.1.7:41234", "10.0.0.5:5432"),
		socket("10.244.1.7:10942", "10.244.1.1:33000"),
	},
}

// sight is what one look of a wait comes to.
func sight(take func(context.Context) (sockdiag.Look, error), own ...uint16) looks.Sight {
	l := looks.Looker{Take: take, Scope: sockdiag.Scope{Except: own}}
	return l.Look(context.Background())
}

// P4, P32: what the helper is told of the pod's sockets, and by which mark.
func TestList(t *testing.T) {
	got := list(sight(sees(pod), 10942), []uint16{10942}, "m-1")
	got.AgeSeconds = 0
	s := func(k sockdiag.Socket) lifecycle.Socket { return lifecycle.Socket{Local: k.Local, Peer: k.Peer} }
	want := &lifecycle.SocketList{
		Mark:      "m-1",
		Listening: []uint16{8080, 10942, 15006},
		Inbound:   []lifecycle.Socket{s(pod.Sockets[0])},
		Other:     []lifecycle.Socket{s(pod.Sockets[3]), s(pod.Sockets[4])},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
}

// Where other namespaces may be behind the pod's, that somebody listens on a port does
// not say that its connections end here: a Docker inside of the pod listens on what it
// publishes, and leads it on.
func TestListenersOfANestedNetwork(t *testing.T) {
	for _, tc := range []struct {
		own  string
		told bool
	}{
		{"10.244.1.7 127.0.0.1 ::1 fe80::1", true},
		{"10.244.1.7 fd00::7 fe80::1 127.0.0.1", true},
		{"10.244.1.7 172.17.0.1 127.0.0.1", false},
		{"fd00::7 fd00:1::1", false},
	} {
		look := pod
		look.Own = nil
		for a := range strings.FieldsSeq(tc.own) {
			look.Own = append(look.Own, netip.MustParseAddr(a))
		}
		if got := list(sight(sees(look)), nil, ""); (len(got.Listening) > 0) != tc.told {
			t.Errorf("with %s the helper is told of %v", tc.own, got.Listening)
		}
	}
}

// A server that stops to listen goes on with what it has accepted.
func TestClosedListenerStillCounts(t *testing.T) {
	look := pod
	l := looks.Looker{Take: func(context.Context) (sockdiag.Look, error) { return look, nil }}
	l.Look(t.Context())
	look.Listening = nil
	s := l.Look(t.Context())
	if got := list(s, nil, ""); len(got.Inbound) != 2 {
		t.Errorf("inbound %v, want the client's and the hook's", got.Inbound)
	}
	if open, known := sessions(s, []uint16{15006}, nil); open != 1 || !known {
		t.Errorf("%d sessions on a named port, known %t", open, known)
	}
}

// record keeps the requests that a helper gets.
func record(into *[]lifecycle.DrainRequest, h helper) helper {
	return func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
		*into = append(*into, r)
		return h(ctx, r)
	}
}

// always gives the same answer, at once.
func always(status int, a lifecycle.DrainAnswer) helper {
	return func(context.Context, lifecycle.DrainRequest) (*http.Response, error) {
		b, err := json.Marshal(a)
		if err != nil {
			return nil, err
		}
		return answers(status, string(b))
	}
}

// A helper that asks for looks gets them at once, with its mark, but not without a
// pause: whatever it does, they cost little.
func TestLooksWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []lifecycle.DrainRequest
		left := 10.0
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		Wait(ctx, Config{look: session(time.Hour), Serves: []uint16{10942}, FallbackSleep: 7 * time.Second, transport: record(&got,
			always(http.StatusOK, lifecycle.DrainAnswer{Phase: "draining", RemainingSeconds: &left, Look: true, Mark: "m"}))})
		if len(got) < 18 || len(got) > 21 {
			t.Errorf("%d looks in a second, want one each 50 ms", len(got))
		}
		for i, r := range got {
			want := "m"
			if i == 0 {
				want = ""
			}
			if r.Sockets == nil || r.Sockets.Mark != want || len(r.Sockets.Inbound) != 1 || r.FallbackSleepSeconds != 7 || len(r.Serves) != 1 {
				t.Fatalf("request %d is %+v", i, r)
			}
		}
	})
}

// A look that takes long is taken seldom.
func TestDearLooksAreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []lifecycle.DrainRequest
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		Wait(ctx, Config{transport: record(&got, always(http.StatusOK, lifecycle.DrainAnswer{Phase: "draining", Look: true})),
			look: func(context.Context) (sockdiag.Look, error) {
				<-time.After(20 * time.Millisecond)
				return sockdiag.Look{}, nil
			},
			spent: func() time.Duration { return time.Duration(time.Now().UnixNano()) }})
		if len(got) < 24 || len(got) > 26 {
			t.Errorf("%d looks of 20 ms in 10 s, want a twentieth of the time", len(got))
		}
	})
}

// P13: on the node's network its sockets are everybody's. They are told to nobody,
// and count only on ports that were named.
func TestP13HostNetwork(t *testing.T) {
	node := pod
	node.Own = append([]netip.Addr{netip.MustParseAddr("192.0.2.1")}, pod.Own...)
	refuses := always(http.StatusForbidden, lifecycle.DrainAnswer{Message: "set conndrain.io/ports", HostNetwork: true})
	for _, tc := range []struct {
		name   string
		c      Config
		helper helper
		want   lifecycle.Reason
		waited time.Duration
	}{
		{"the node's address is an own one", Config{Node: "192.0.2.1"}, absent, Slept, 15 * time.Second},
		{"it is told beside the helper's", Config{Node: "helper", HostIP: "192.0.2.1"}, absent, Slept, 15 * time.Second},
		{"the helper says so", Config{Node: "helper"}, refuses, Slept, 15 * time.Second},
		{"a port without sessions", Config{Node: "192.0.2.1", Ports: []uint16{9}}, absent, lifecycle.Drained, 15 * time.Second},
		{"a port with one", Config{Node: "192.0.2.1", Ports: []uint16{15006}}, refuses, lifecycle.Expired, 24 * time.Second},
		{"a short grace", Config{Node: "192.0.2.1", Grace: 10 * time.Second}, absent, Slept, 8 * time.Second},
		{"it is served", Config{Node: "192.0.2.1"}, always(http.StatusOK, lifecycle.DrainAnswer{Phase: "released", Reason: lifecycle.Drained}), lifecycle.Drained, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got []lifecycle.DrainRequest
				tc.c.look, tc.c.transport = sees(node), record(&got, tc.helper)
				r := Wait(t.Context(), tc.c)
				if late := r.Waited - tc.waited; r.Reason != tc.want || late < 0 || late > 2*time.Second {
					t.Errorf("%s after %s, want %s after %s", r.Reason, r.Waited, tc.want, tc.waited)
				}
				for i, request := range got {
					// Before the helper has said so, a hook that is told nothing cannot know.
					if request.Sockets != nil && (i > 0 || tc.c.Node != "helper" || tc.c.HostIP != "") {
						t.Errorf("request %d tells of the node's sockets", i)
					}
				}
			})
		})
	}
}

// One look that misses a socket ends nothing.
func TestOneLookWithoutSessionsIsNotEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := Wait(t.Context(), Config{transport: helper(absent), Grace: 100 * time.Second, FallbackSleep: time.Second,
			look: func(ctx context.Context) (sockdiag.Look, error) {
				// Every second look misses it, for thirty seconds.
				if s := time.Since(start).Truncate(time.Second) / time.Second; s < 30 && s%2 == 0 {
					return session(time.Hour)(ctx)
				}
				return sockdiag.Look{}, nil
			}})
		if r.Reason != lifecycle.Drained || r.Waited < 30*time.Second || r.Waited > 32*time.Second {
			t.Errorf("%+v, want %s after 30s", r, lifecycle.Drained)
		}
	})
}

// P29: whatever is wrong with the helper, the fallback begins within two seconds.
func TestP29FallbackBeginsSoon(t *testing.T) {
	for name, h := range map[string]helper{"absent": absent, "hangs": hangs, "a mesh's 502": proxy, "garbage": garbage, "unknown address": unknown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var seen []time.Duration
				take := sees(sockdiag.Look{})
				r := Wait(t.Context(), Config{transport: h, look: func(ctx context.Context) (sockdiag.Look, error) {
					seen = append(seen, time.Since(start))
					return take(ctx)
				}})
				// The first one was for the helper.
				if r.Reason != lifecycle.Drained || seen[1] > 2*time.Second || r.Waited < 15*time.Second || r.Waited > 17*time.Second {
					t.Errorf("%+v, the fallback looked at %s", r, seen)
				}
			})
		})
	}
}
