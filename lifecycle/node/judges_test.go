package node

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

func TestJudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j judges
		able := lifecycle.DrainRequest{
			Can: []string{lifecycle.CanJudge}, Sockets: &lifecycle.SocketList{}, Requests: &lifecycle.RequestReport{},
		}
		expect := func(when string, want bool, why string) {
			t.Helper()
			if got, because := j.can(time.Now()); got != want || because != why {
				t.Errorf("%s: %t %q, want %t %q", when, got, because, want, why)
			}
		}
		expect("nobody was heard of", false, "")
		j.hear(lifecycle.DrainRequest{Sockets: &lifecycle.SocketList{}}, time.Now())()
		expect("an old hook", false, whyOldHook)
		leave := j.hear(able, time.Now())
		<-time.After(time.Hour)
		expect("one that can is here", true, "")
		leave()
		<-time.After(reporterPatience - time.Second)
		expect("it may come back", true, "")
		<-time.After(2 * time.Second)
		expect("it did not", false, whyKilled)
		leave = j.hear(able, time.Now())
		expect("it did", true, "")
		blind := able
		blind.Requests = &lifecycle.RequestReport{Blind: "no\nsock_diag"}
		leaveBlind := j.hear(blind, time.Now())
		expect("one of two cannot see", true, "")
		leave()
		expect("the other one may come back", true, "")
		<-time.After(reporterPatience + time.Second)
		expect("it did not, and this one cannot see", false, "its hook cannot tell requests: no sock_diag")
		if j.classes(time.Now()) != nil {
			t.Error("classes of a hook that cannot tell")
		}
		leave = j.hear(able, time.Now())
		expect("one that can again", true, "")
		leave()
		j.gone()
		expect("it has left by itself, beside one that cannot see", false, "its hook cannot tell requests: no sock_diag")
		leaveBlind()
		j.hear(able, time.Now())()
		expect("all can again", true, "")
		j.gone()
		expect("it has left by itself", false, whyKilled)
		without := able
		without.Sockets = nil
		j.hear(without, time.Now())()
		expect("without a list", false, "its hook cannot tell requests: the kernel does not list its sockets")
	})
}

// Nothing that nobody reads is kept of a drain that has ended.
func TestReleasedKeepsNoReports(t *testing.T) {
	d := newDrain(podWithGrace(30, 30), time.Now(), false, Config{Logger: slog.New(slog.DiscardHandler)})
	says := func() {
		d.judges.hear(lifecycle.DrainRequest{
			Can: []string{lifecycle.CanJudge}, Sockets: &lifecycle.SocketList{}, Requests: &lifecycle.RequestReport{},
		}, time.Now())
		d.report(conntrack.SocketReport{At: time.Now()})
	}
	kept := func() bool { return d.judges.report != nil || d.reported != nil }
	if says(); !kept() {
		t.Fatal("nothing is kept before the end")
	}
	if d.become(state{phase: lifecycle.Released, reason: lifecycle.Drained}); kept() {
		t.Error("they are kept at the end")
	}
	if says(); kept() {
		t.Error("they are kept after the end")
	}
}

// Of a report only what means something is kept, and of no more clients than a hook names.
func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	clients := func(from, n int) string {
		return fmt.Sprintf(`{"10.0.0.1":[%s]}`, strings.Join(numbers(from, n), ","))
	}
	words := make([]string, 1000)
	for i := range words {
		words[i] = fmt.Sprintf("%q:{}", fmt.Sprint("class", i))
	}
	for _, tc := range []struct {
		name  string
		says  string
		named map[string]int
		count map[string]int
	}{
		{"a hook's own words", `"classes":{"owes":` + clients(1, 2) + `,"between":` + clients(3, 3) + `},"counts":{"owes":2,"between":3}`,
			map[string]int{"owes": 2, "between": 3}, map[string]int{"owes": 2, "between": 3}},
		{"as many clients as a hook names", `"classes":{"unknown":` + clients(1, lifecycle.MaxClassedPeers) + `},"counts":{"unknown":9000}`,
			map[string]int{"unknown": lifecycle.MaxClassedPeers}, map[string]int{"unknown": 9000}},
		{"more", `"classes":{"unknown":` + clients(1, 40000) + `}`, map[string]int{"unknown": lifecycle.MaxClassedPeers}, nil},
		{"more of several classes", `"classes":{"owes":` + clients(1, 1500) + `,"sending":` + clients(2001, 1500) + `,"unknown":` + clients(4001, 1500) + `}`,
			map[string]int{"owes": 1500, "sending": lifecycle.MaxClassedPeers - 1500}, nil},
		{"made-up words", `"classes":{` + strings.Join(words, ",") + `,"owes":` + clients(1, 1) + `},"counts":{"tea":1,"owes":1},"blind":"  ","quietAgoSeconds":1`,
			map[string]int{"owes": 1}, map[string]int{"owes": 1}},
		{"nothing", `"counts":null`, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r lifecycle.DrainRequest
			if err := json.Unmarshal([]byte(`{"can":["judge"],"sockets":{},"requests":{`+tc.says+`}}`), &r); err != nil {
				t.Fatal(err)
			}
			var j judges
			j.hear(r, time.Now())
			kept := j.classes(time.Now())
			named := make(map[string]int)
			for class, peers := range kept.Classes {
				named[class] = len(peers)
				for p := range peers {
					if !r.Requests.Classes[class].Has(p) {
						t.Errorf("%s is made up", p)
					}
				}
			}
			if diff := cmp.Diff(tc.named, named, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("clients by class (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.count, kept.Counts, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			if kept.Blind != "" || kept.QuietAgoSeconds != nil {
				t.Errorf("nobody reads %+v", kept)
			}
		})
	}
}

func numbers(from, n int) (all []string) {
	for i := range n {
		all = append(all, strconv.Itoa(from+i))
	}
	return all
}

// Of what a hook says that it can only the words that mean something are kept.
func TestCallerKeepsKnownWords(t *testing.T) {
	c := newCaller(lifecycle.DrainRequest{Can: []string{"brew", lifecycle.CanSignal, "tea", lifecycle.CanJudge}}, time.Now(), nil)
	if want := []string{lifecycle.CanJudge, lifecycle.CanSignal}; !slices.Equal(c.can, want) {
		t.Errorf("%q, want %q", c.can, want)
	}
}

// The latest moment without a request counts, whoever saw it.
func TestQuietAt(t *testing.T) {
	now := time.Now()
	var j judges
	if !j.quietAt().IsZero() {
		t.Error("a moment before there was one")
	}
	for _, ago := range []float64{3, 1, 2} {
		j.hear(lifecycle.DrainRequest{Can: []string{lifecycle.CanJudge}, Requests: &lifecycle.RequestReport{QuietAgoSeconds: &ago}}, now)()
	}
	if got := now.Sub(j.quietAt()); got != time.Second {
		t.Errorf("%s ago, want 1s", got)
	}
}

// At the deadline people learn of how many sessions nobody could tell anything: what holds for
// its sessions is none of them, and what the strict rule cannot tell may be more.
func TestUntold(t *testing.T) {
	set := func(all ...uint16) lifecycle.PeerSet {
		peers := make(lifecycle.PeerSet)
		for _, n := range all {
			peers.Add(peer(n))
		}
		return peers
	}
	for _, tc := range []struct {
		name         string
		says         map[string]lifecycle.PeerSet // nil is nobody
		wide, strict lifecycle.PeerSet
		want         untold
	}{
		{"nobody tells", nil, set(1, 2), nil, untold{}},
		{"all are told", map[string]lifecycle.PeerSet{"owes": set(1), "between": set(2)}, set(1, 2), nil, untold{}},
		{"some are not", map[string]lifecycle.PeerSet{"owes": set(1), "unknown": set(2, 3)}, set(1, 2, 3), nil, untold{sessions: 2}},
		{"others than those that hold", map[string]lifecycle.PeerSet{"owes": set(1), "unknown": set(8, 9)}, set(1), nil, untold{}},
		{"one that was not named", map[string]lifecycle.PeerSet{"unknown": set(1)}, set(1, 2), nil, untold{1, true}},
		{"by the strict rule", map[string]lifecycle.PeerSet{"between": set(1), "unknown": set(2)}, nil, set(1, 2), untold{1, true}},
		{"all by the strict rule", map[string]lifecycle.PeerSet{"unknown": set(1, 2)}, nil, set(1, 2), untold{sessions: 2}},
		{"by both", map[string]lifecycle.PeerSet{"owes": set(1), "unknown": set(2, 3)}, set(1, 2), set(3), untold{sessions: 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := newVigil()
			v.apart.wide, v.apart.strict = tc.wide, tc.strict
			v.apart.requests = len(tc.wide) + len(tc.strict)
			now := time.Now()
			if tc.says != nil {
				v.judges.hear(lifecycle.DrainRequest{
					Can: []string{lifecycle.CanJudge}, Sockets: &lifecycle.SocketList{},
					Requests: &lifecycle.RequestReport{Classes: tc.says},
				}, now)
			}
			if got := v.untold(now); got != tc.want {
				t.Errorf("%+v untold, want %+v", got, tc.want)
			}
		})
	}
}
