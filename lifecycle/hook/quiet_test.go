package hook

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// beat is a connection on which a request comes every period and is answered after so
// long, from the beginning on. Figures are those that a kernel would tell.
type beat struct {
	peer         string
	period, work time.Duration
	from, until  time.Duration // of the connection itself
}

func (b beat) at(now time.Duration) (sockdiag.Socket, sockdiag.Traffic, bool) {
	if now < b.from || b.until > 0 && now >= b.until {
		return sockdiag.Socket{}, sockdiag.Traffic{}, false
	}
	age := now - b.from
	asked := uint64(age/b.period) + 1
	done := asked - 1
	since := age % b.period
	sent := b.period - b.work + since
	if since >= b.work {
		done, sent = asked, since-b.work
	}
	return socket("10.244.1.7:8080", b.peer), sockdiag.Traffic{
		Known: true, SinceReceived: since, SinceSent: sent,
		Received: 100 * asked, DataReceived: uint32(asked),
		Sent: 300 * done, Acknowledged: 300 * done, DataSent: uint32(done), Segments: uint32(done),
	}, true
}

// beats looks at such connections.
func beats(all ...beat) func(context.Context) (sockdiag.Look, error) {
	start := time.Now()
	return func(context.Context) (sockdiag.Look, error) {
		l := sockdiag.Look{At: time.Now(), Listening: []uint16{8080}, Own: []netip.Addr{netip.MustParseAddr("10.244.1.7")}}
		for _, b := range all {
			if s, t, there := b.at(time.Since(start)); there {
				l.Sockets, l.Traffic = append(l.Sockets, s), append(l.Traffic, t)
			}
		}
		return l, nil
	}
}

const (
	ms     = time.Millisecond
	second = time.Second
	one    = "10.244.2.9:40000"
	two    = "10.244.2.9:40002"
)

// keepAlive is a client with a pause between two requests.
var keepAlive = beat{peer: one, period: 200 * ms, work: 50 * ms}

// What the hook ends by itself for, and when.
func TestQuiet(t *testing.T) {
	type end struct {
		reason lifecycle.Reason
		helper bool
		cut    int
		// The wait ended between the two.
		from, to time.Duration
	}
	all := func(p *permits, change func(*lifecycle.DrainAnswer)) {
		p.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) { change(a) }
	}
	after := func(p *permits, moment time.Duration, change func(*lifecycle.DrainAnswer)) {
		all(p, func(a *lifecycle.DrainAnswer) {
			if time.Since(p.start) >= moment {
				change(a)
			}
		})
		time.AfterFunc(moment, p.now)
	}
	before := func(p *permits, moment time.Duration, change func(*lifecycle.DrainAnswer)) {
		all(p, func(a *lifecycle.DrainAnswer) {
			if time.Since(p.start) < moment {
				change(a)
			}
		})
		time.AfterFunc(moment, p.now)
	}
	none := func(a *lifecycle.DrainAnswer) { a.WhenQuiet = nil }
	drained := func(from, to time.Duration) end { return end{lifecycle.Drained, true, 0, from, to} }
	for _, tc := range []struct {
		name  string
		beats []beat
		setup func(*permits)
		want  end
	}{
		{"between two requests, after three", []beat{keepAlive}, nil, drained(400*ms, second)},
		{"by the strict rule", []beat{keepAlive}, func(p *permits) { p.strict = true }, drained(400*ms, second)},
		{"not before the permission", []beat{keepAlive}, func(p *permits) { before(p, 10*second, none) }, drained(10*second, 10500*ms)},
		{"a request of 3 s in flight", []beat{keepAlive, {peer: two, period: time.Hour, work: 3 * second}}, func(p *permits) { p.quiet = 100 * ms }, drained(3*second, 3500*ms)},
		{"a request that is never answered", []beat{{peer: two, period: 2 * time.Hour, work: time.Hour}}, nil, end{lifecycle.Expired, false, 0, time.Minute, 62 * second}},
		{"nobody can tell, and it is silent", []beat{{peer: two, period: time.Hour, work: second}}, nil, drained(11*second, 11500*ms)},
		{"nobody can tell, for ever", []beat{{peer: two, period: time.Hour, work: second}}, func(p *permits) { p.quiet = 0 }, end{lifecycle.Expired, false, 0, time.Minute, 62 * second}},
		{"the permission is taken back before the moment", []beat{{peer: two, period: time.Hour, work: 3 * second}}, func(p *permits) {
			p.quiet = 100 * ms
			after(p, 2*second, none)
		}, end{lifecycle.Expired, false, 0, time.Minute, 62 * second}},
		{"a client that is not listed", []beat{keepAlive, {peer: two, period: 200 * ms, work: 50 * ms}}, func(p *permits) {
			before(p, 20*second, func(a *lifecycle.DrainAnswer) { delete(a.WhenQuiet.Requests, netip.MustParseAddrPort(two)) })
		}, drained(20*second, 20500*ms)},
		{"a client that is ignored", []beat{keepAlive, {peer: two, period: 2 * time.Hour, work: time.Hour}}, func(p *permits) {
			all(p, func(a *lifecycle.DrainAnswer) {
				delete(a.WhenQuiet.Requests, netip.MustParseAddrPort(two))
				a.WhenQuiet.Ignored = lifecycle.PeerSet{netip.MustParseAddrPort(two): {}}
			})
		}, drained(400*ms, second)},
		{"a port that is ignored", []beat{keepAlive, {peer: two, period: 2 * time.Hour, work: time.Hour}}, func(p *permits) {
			all(p, func(a *lifecycle.DrainAnswer) {
				delete(a.WhenQuiet.Requests, netip.MustParseAddrPort(two))
				a.WhenQuiet.IgnoredPorts = []uint16{8080}
			})
		}, drained(400*ms, second)},
		{"a client that the hook does not see", []beat{keepAlive}, func(p *permits) {
			before(p, 20*second, func(a *lifecycle.DrainAnswer) { a.WhenQuiet.Requests.Add(netip.MustParseAddrPort(two)) })
		}, drained(20*second, 20500*ms)},
		{"an idle client that has no socket", []beat{keepAlive}, func(p *permits) {
			all(p, func(a *lifecycle.DrainAnswer) {
				a.WhenQuiet.Requests.Add(netip.MustParseAddrPort(two))
				a.WhenQuiet.Ignored = lifecycle.PeerSet{netip.MustParseAddrPort(two): {}}
			})
		}, drained(400*ms, second)},
		{"an idle client that asks again", []beat{keepAlive, {peer: two, period: time.Hour, work: 3 * second}}, func(p *permits) {
			p.quiet = 100 * ms
			all(p, func(a *lifecycle.DrainAnswer) {
				a.WhenQuiet.Requests.Add(netip.MustParseAddrPort(two))
				a.WhenQuiet.Ignored = lifecycle.PeerSet{netip.MustParseAddrPort(two): {}}
			})
		}, drained(3*second, 3500*ms)},
		{"a client of the strict rule that the hook does not see", []beat{keepAlive}, func(p *permits) {
			before(p, 20*second, func(a *lifecycle.DrainAnswer) {
				a.WhenQuiet.Strict = lifecycle.PeerSet{netip.MustParseAddrPort(two): {}}
			})
		}, drained(20*second, 20500*ms)},
		{"a client that was seen and has gone", []beat{keepAlive, {peer: two, period: 2 * time.Hour, work: time.Hour, until: 5 * second}}, func(p *permits) {
			all(p, func(a *lifecycle.DrainAnswer) { a.WhenQuiet.Requests.Add(netip.MustParseAddrPort(two)) })
		}, drained(5*second, 5500*ms)},
		{"a new client, answered as the others are", []beat{keepAlive, {peer: two, period: 2 * time.Hour, work: 6 * second, from: 300 * ms}}, nil, drained(6300*ms, 7*second)},
		{"a new client that is soon between, too", []beat{keepAlive, {peer: two, period: 200 * ms, work: 50 * ms, from: 300 * ms}, {peer: "10.244.2.9:40004", period: 2 * time.Hour, work: time.Hour, until: 1200 * ms}}, nil, drained(1200*ms, 2500*ms)},
		{"busy", []beat{{peer: one, period: 200 * ms, work: 140 * ms}, {peer: two, period: 100 * ms, work: 99 * ms}}, func(p *permits) { p.busyAfter = 5 * second }, end{lifecycle.Drained, true, 1, 5 * second, 7 * second}},
		{"the helper releases it", []beat{{peer: one, period: 2 * time.Hour, work: time.Hour}}, func(p *permits) {
			after(p, 3*second, func(a *lifecycle.DrainAnswer) { a.Phase, a.Reason = "released", lifecycle.ReleasedByUser })
		}, end{lifecycle.ReleasedByUser, true, 0, 3 * second, 3500 * ms}},
		{"on the node's network", []beat{keepAlive}, func(p *permits) { all(p, func(a *lifecycle.DrainAnswer) { a.HostNetwork = true }) }, end{Slept, false, 0, time.Minute, 62 * second}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPermits()
				if tc.setup != nil {
					tc.setup(p)
				}
				r := Wait(t.Context(), Config{look: beats(tc.beats...), transport: helper(p.answer)})
				got := end{r.Reason, r.Helper, r.Cut, tc.want.from, tc.want.to}
				if got != tc.want || r.Waited < tc.want.from || r.Waited > tc.want.to {
					t.Errorf("%+v, want %+v", r, tc.want)
				}
				last, _ := p.last()
				if tc.want.reason == lifecycle.Drained && (last == nil || last.Cut != tc.want.cut) || tc.want.reason != lifecycle.Drained && last != nil {
					t.Errorf("the last word is %+v", last)
				}
			})
		})
	}
}

// A look decides only if it began after the permission was there; and a client that is
// listed holds while all that is seen of it is a socket that nobody can tell anything
// of.
func TestWhatALookDecides(t *testing.T) {
	t.Parallel()
	permission := &lifecycle.WhenQuiet{Requests: lifecycle.PeerSet{netip.MustParseAddrPort(one): {}}}
	for _, tc := range []struct {
		name   string
		socket sockdiag.Socket
		early  bool
		want   bool
	}{
		{"opening", sockdiag.Socket{Local: netip.MustParseAddrPort("10.244.1.7:8080"), Peer: netip.MustParseAddrPort(one), State: sockdiag.SynRecv}, false, false},
		{"on a port that nobody listens on", socket("10.244.1.7:9090", one), false, false},
		{"on a port that somebody listens on", socket("10.244.1.7:8080", one), false, false},
		{"closed, with nothing to lose", sockdiag.Socket{Local: netip.MustParseAddrPort("10.244.1.7:8080"), Peer: netip.MustParseAddrPort(one), State: sockdiag.LastAck}, false, true},
		{"the same, before the permission", sockdiag.Socket{Local: netip.MustParseAddrPort("10.244.1.7:8080"), Peer: netip.MustParseAddrPort(one), State: sockdiag.LastAck}, true, false},
	} {
		ended := false
		q := quiet{end: func() { ended = true }}
		s := sight(sees(sockdiag.Look{Listening: []uint16{8080}, Sockets: []sockdiag.Socket{tc.socket}}))
		q.permit(permission)
		if !tc.early {
			s.At = time.Now()
		}
		if q.look(s); ended != tc.want || (q.over() != nil) != tc.want {
			t.Errorf("%s: ended %t, want %t", tc.name, ended, tc.want)
		}
	}
}

// Whatever is wrong with the helper takes its permission away at once: the old
// fallback goes on.
func TestQuietWithoutAHelper(t *testing.T) {
	for name, broken := range map[string]helper{
		"dies": absent, "a proxy answers": proxy, "garbage": garbage, "refuses": unknown,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPermits()
				p.quiet = 100 * ms
				p.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) {
					a.WhenQuiet.Requests.Add(netip.MustParseAddrPort(two))
				}
				time.AfterFunc(2*second, p.now)
				// In flight when the helper fails, and soon over; then there is silence.
				r := Wait(t.Context(), Config{
					look:      beats(beat{peer: two, period: time.Hour, work: 3 * second, until: 30 * second}),
					transport: until(1900*ms, p.answer, func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) { return broken(ctx, r) }),
				})
				if r.Reason != lifecycle.Drained || r.Helper || r.Waited < 30*second || r.Waited > 33*second {
					t.Errorf("%+v, want the fallback's end after 30 s", r)
				}
			})
		})
	}
}

// A helper that hangs keeps its permission until its answer is overdue.
func TestQuietWithAHelperThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPermits()
		p.quiet = 100 * ms
		r := Wait(t.Context(), Config{
			look:      beats(beat{peer: two, period: time.Hour, work: 20 * second, until: 40 * second}),
			transport: until(1900*ms, p.answer, hangs),
		})
		if r.Reason != lifecycle.Drained || r.Helper || r.Waited < 40*second || r.Waited > 43*second {
			t.Errorf("%+v, want the fallback's end after 40 s", r)
		}
	})
}

// After a request that the hook has ended itself nothing is permitted until the next
// answer: here to what was told of the application, for which that was.
func TestNothingIsPermittedUntilTheNextAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPermits()
		p.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) {
			a.Notify = &lifecycle.Notify{Signal: "SIGUSR1"}
		}
		r := tellOnce(t, Config{
			look: beats(beat{peer: two, period: time.Hour, work: 20 * second, until: 3500 * ms}),
			transport: helper(func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
				if r.Notified != nil {
					return hangs(ctx, r)
				}
				return p.answer(ctx, r)
			}),
		}, 3*second)
		if r.Reason != lifecycle.Drained || r.Helper || r.Waited < lifecycle.DefaultFallbackSleep {
			t.Errorf("%+v, want the fallback's end", r)
		}
	})
}

// A hook that can tell no more what requests do has no permission until the helper has
// heard of that.
func TestNothingIsPermittedToTheBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPermits()
		p.quiet = 0
		time.AfterFunc(2*second, p.now)
		sees := beats(beat{peer: two, period: time.Hour, work: 20 * second, until: 3 * second})
		start := time.Now()
		r := Wait(t.Context(), Config{
			look: func(ctx context.Context) (sockdiag.Look, error) {
				l, err := sees(ctx)
				if time.Since(start) > 1900*ms {
					l.Source, l.Refusal, l.Traffic = sockdiag.ProcNet, errRefused, nil
				}
				return l, err
			},
			transport: helper(func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
				if r.Requests != nil && r.Requests.Blind != "" {
					return hangs(ctx, r)
				}
				return p.answer(ctx, r)
			}),
		})
		if r.Reason != lifecycle.Drained || r.Helper || r.Waited < lifecycle.DefaultFallbackSleep {
			t.Errorf("%+v, want the fallback's end", r)
		}
	})
}

// A permission that was taken back begins anew: what was learned of a busy pod under the
// one before is worth nothing.
func TestBusyBeginsAnewWithThePermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []beat{{peer: one, period: 200 * ms, work: 140 * ms}, {peer: two, period: 100 * ms, work: 99 * ms}}
		permission := &lifecycle.WhenQuiet{BusyAfterSeconds: 5, Requests: lifecycle.PeerSet{
			netip.MustParseAddrPort(one): {}, netip.MustParseAddrPort(two): {},
		}}
		q := quiet{end: func() {}}
		l := looks.Looker{Take: beats(all...)}
		lookOn := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end) && q.over() == nil; {
				<-time.After(20 * ms)
				q.look(l.Look(t.Context()))
			}
		}
		lookOn(3 * second)
		q.permit(permission)
		lookOn(4 * second)
		q.permit(nil)
		q.permit(permission)
		if lookOn(4 * second); q.over() != nil {
			t.Fatal("it has ended by what it saw under the permission that was taken back")
		}
		if lookOn(4 * second); q.over() == nil || q.over().Cut != 1 {
			t.Errorf("it never ended, or not by one request: %+v", q.over())
		}
	})
}

// The last word is not waited for.
func TestLastWordThatNobodyHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPermits()
		r := Wait(t.Context(), Config{look: beats(keepAlive), transport: helper(func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
			if r.Leaving != nil {
				return hangs(ctx, r)
			}
			return p.answer(ctx, r)
		})})
		if r.Reason != lifecycle.Drained || !r.Helper || r.Waited > second+lastWord {
			t.Errorf("%+v", r)
		}
	})
}

// What the helper is told of the pod's requests.
func TestRequestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPermits()
		p.hasty = true
		p.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) { a.WhenQuiet, a.Look = nil, true }
		ctx, cancel := context.WithTimeout(t.Context(), 5*second)
		defer cancel()
		Wait(ctx, Config{look: beats(keepAlive, beat{peer: two, period: time.Hour, work: 2 * second}), transport: helper(p.answer)})
		all := p.all()
		first, last := all[0], all[len(all)-1]
		if diff := cmp.Diff([]string{"notify-http", "notify-signal", "judge"}, first.Can); diff != "" {
			t.Errorf("can (-want +got):\n%s", diff)
		}
		if first.Requests == nil || first.Requests.QuietAgoSeconds != nil || first.Requests.Counts["owes"] != 2 {
			t.Errorf("at first: %+v", first.Requests)
		}
		r := last.Requests
		if r == nil || r.Blind != "" || r.Counts["unknown"] != 1 || !r.Classes["unknown"].Has(netip.MustParseAddrPort(two)) || len(r.Classes) != 2 {
			t.Errorf("at last: %+v", r)
		}
		if i := slices.IndexFunc(all, func(r lifecycle.DrainRequest) bool { return r.Requests.Counts["between"] == 1 }); i < 0 {
			t.Error("the other one was never between")
		}
	})
}

// A pod under requests could also have gone once a connection of which nobody can tell
// had been silent for as long as usual, and not while an answer is owed.
func TestCouldHaveGone(t *testing.T) {
	for _, tc := range []struct {
		name  string
		beats []beat
		// The first such moment lies between the two; 0 is never.
		from, to time.Duration
	}{
		{"nobody", nil, 0, 100 * ms},
		{"between two requests", []beat{keepAlive}, 100 * ms, second},
		{"an idle connection", []beat{{peer: two, period: time.Hour, work: 2 * second}}, 12 * second, 12500 * ms},
		{"an idle connection beside requests", []beat{keepAlive, {peer: two, period: time.Hour, work: 2 * second}}, 12 * second, 12500 * ms},
		{"an answer is owed", []beat{{peer: two, period: 2 * time.Hour, work: time.Hour}}, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPermits()
				p.hasty = true
				p.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) { a.WhenQuiet, a.Look = nil, true }
				ctx, cancel := context.WithTimeout(t.Context(), 15*second)
				defer cancel()
				Wait(ctx, Config{look: beats(tc.beats...), transport: helper(p.answer)})
				all := p.all()
				i := slices.IndexFunc(all, func(r lifecycle.DrainRequest) bool { return r.Requests.QuietAgoSeconds != nil })
				if i < 0 {
					if tc.to > 0 {
						t.Errorf("never, want it after %s", tc.from)
					}
					return
				}
				at := lifecycle.Seconds(all[i].ElapsedSeconds - *all[i].Requests.QuietAgoSeconds)
				if at < tc.from-ms || at > tc.to {
					t.Errorf("%s after the beginning, want %s to %s", at, tc.from, tc.to)
				}
			})
		})
	}
}

// Whoever cannot see traffic says why, and ends nothing.
func TestBlind(t *testing.T) {
	for _, tc := range []struct {
		name string
		look func(context.Context) (sockdiag.Look, error)
	}{
		{"from /proc", func(context.Context) (sockdiag.Look, error) {
			return sockdiag.Look{At: time.Now(), Source: sockdiag.ProcNet, Refusal: errRefused}, nil
		}},
		{"an old kernel", func(ctx context.Context) (sockdiag.Look, error) {
			l, err := beats(keepAlive)(ctx)
			l.Traffic = make([]sockdiag.Traffic, len(l.Sockets))
			return l, err
		}},
		{"nothing at all", func(context.Context) (sockdiag.Look, error) { return sockdiag.Look{}, errRefused }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPermits()
				ctx, cancel := context.WithTimeout(t.Context(), 15*second)
				defer cancel()
				p.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) {
					a.WhenQuiet.Requests = lifecycle.PeerSet{netip.MustParseAddrPort(one): {}}
				}
				if r := Wait(ctx, Config{look: tc.look, transport: helper(p.answer)}); r.Reason != lifecycle.Cancelled {
					t.Errorf("%+v", r)
				}
				if r := p.all()[0].Requests; r == nil || r.Blind == "" || r.Counts != nil {
					t.Errorf("told the helper %+v", r)
				}
			})
		})
	}
}

// A request has room for as many clients as there may be, whatever their addresses.
func TestReportHasRoom(t *testing.T) {
	t.Parallel()
	for _, sockets := range []int{100, 3000, 20000} {
		l := sockdiag.Look{At: time.Now(), Listening: []uint16{8080}}
		for i := range sockets {
			peer := netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, byte(i >> 8), byte(i)}), 65535)
			l.Sockets = append(l.Sockets, sockdiag.Socket{State: sockdiag.Established, Local: netip.MustParseAddrPort("[fd00:244:1::7]:8080"), Peer: peer})
			l.Traffic = append(l.Traffic, sockdiag.Traffic{Known: true})
		}
		s := sight(sees(l))
		told := list(s, nil, "mark")
		r := report(s, textSize(told), time.Now())
		b := encoded(t, lifecycle.DrainRequest{Sockets: told, Requests: r})
		named := 0
		for _, set := range r.Classes {
			named += len(set)
		}
		if len(b) > lifecycle.MaxRequestBytes || r.Counts["unknown"] != sockets || named > lifecycle.MaxClassedPeers || sockets == 100 && named != sockets {
			t.Errorf("%d sockets: %d bytes, counted %v, %d named", sockets, len(b), r.Counts, named)
		}
	}
}

// An answer with as many clients as one may have is read whole.
func TestLargestPermission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPermits()
		p.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) {
			a.WhenQuiet.Ignored = make(lifecycle.PeerSet)
			for i := range lifecycle.MaxQuietPeers {
				a.WhenQuiet.Ignored.Add(netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, byte(i >> 8), byte(i)}), 65535))
			}
		}
		if r := Wait(t.Context(), Config{look: beats(keepAlive), transport: helper(p.answer)}); r.Reason != lifecycle.Drained || !r.Helper {
			t.Errorf("%+v", r)
		}
	})
}
