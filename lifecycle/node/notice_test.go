package node

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/record"

	"github.com/conndrain/conndrain/lifecycle"
)

// orders plays requests of hooks to a notice: each names the mark that the hook comes
// with, and gets the mark of its number. It returns which of them are told.
func orders(n *notice, can string, marks ...string) string {
	var told string
	for i, mark := range marks {
		c := caller{can: []string{can}, looks: mark != "-", mark: mark, had: time.Now()}
		if !c.looks || mark == "" {
			c.mark, c.had = "", time.Time{}
		}
		order := n.owed(&c)
		n.answered(&c, fmt.Sprint(i), order, time.Now())
		if order {
			told += fmt.Sprint(i)
		}
	}
	return told
}

func TestNotice(t *testing.T) {
	request := lifecycle.Notify{Method: "POST", Scheme: "http", Port: 8080, Path: "/"}
	signal := lifecycle.Notify{Signal: "SIGUSR1"}
	for _, tc := range []struct {
		name  string
		what  lifecycle.Notify
		can   string
		marks []string
		want  string
	}{
		{"a request, by one hook", request, lifecycle.CanRequest, []string{"", "", "0", "1", "2"}, "0"},
		{"a request whose order was lost", request, lifecycle.CanRequest, []string{"a", "b", "a"}, "02"},
		{"a request, and nobody can", request, lifecycle.CanSignal, []string{"", "0"}, ""},
		{"a signal, by each hook", signal, lifecycle.CanSignal, []string{"", "", "0", "1", "2", "3"}, "01"},
		{"a signal whose order was lost", signal, lifecycle.CanSignal, []string{"a", "a"}, "01"},
		{"an answer after the signal that was lost", signal, lifecycle.CanSignal, []string{"a", "0", "0", "2"}, "0"},
		{"a signal, and only the sidecar", signal, lifecycle.CanRequest, []string{"", "0"}, ""},
		{"a signal, by hooks without marks", signal, lifecycle.CanSignal, []string{"-", "-"}, "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &notice{what: &tc.what, told: make(map[string]*toldHook)}
			if got := orders(n, tc.can, tc.marks...); got != tc.want {
				t.Errorf("told %q, want %q", got, tc.want)
			}
			if len(n.told) > 2*len(tc.want) {
				t.Errorf("%d marks are kept of %d hooks", len(n.told), len(tc.want))
			}
		})
	}
	if got := orders(&notice{}, lifecycle.CanRequest, "", "0"); got != "" {
		t.Errorf("told %q before it is due", got)
	}
}

// A hook that comes with a mark of another helper may have been told by that one, whenever
// this one tells it again.
func TestNoticeAfterARestart(t *testing.T) {
	for _, tc := range []struct {
		name string
		mark string // of the first request to this helper
		had  bool   // that mark is this helper's
		want bool
	}{{"another helper's", "old", false, true}, {"none", "", false, false}, {"this helper's", "0", true, false}} {
		n := &notice{}
		first := caller{can: []string{lifecycle.CanRequest}, looks: true, mark: tc.mark}
		if tc.had {
			first.had = time.Now()
		}
		n.answered(&first, "1", n.owed(&first), time.Now())
		n.what = &lifecycle.Notify{Method: "POST", Scheme: "http", Port: 8080, Path: "/"} // due now
		second := caller{can: first.can, looks: true, mark: "1", had: time.Now()}
		order := n.owed(&second)
		n.answered(&second, "2", order, time.Now())
		if !order || n.again != tc.want {
			t.Errorf("%s: told %t, perhaps again %t; want true, %t", tc.name, order, n.again, tc.want)
		}
	}
}

// Hooks that are made up, each with a mark of its own, make nothing grow.
func TestNoticeIsBounded(t *testing.T) {
	n := &notice{what: &lifecycle.Notify{Signal: "SIGUSR1"}, told: make(map[string]*toldHook)}
	for i := range 10 * maxGiven {
		orders(n, lifecycle.CanSignal, fmt.Sprint("made up ", i))
		n.answered(&caller{looks: true, mark: "0"}, fmt.Sprint("its ", i), false, time.Now())
	}
	if n.given > maxGiven || len(n.told) > 2*maxGiven {
		t.Errorf("%d orders, and %d marks are kept", n.given, len(n.told))
	}
}

// A hook that was told and does not come back after the release is said to, once; one that
// does, or a release without an order, says nothing more.
func TestAwaitResult(t *testing.T) {
	for _, tc := range []struct {
		name  string
		order bool
		do    func(*vigil)
		after time.Duration
		said  int
	}{
		{"no order", false, func(*vigil) {}, 0, 0},
		{"a request that hangs", true, func(*vigil) {}, resultPatience, 1},
		{"a pod that is gone", true, func(v *vigil) { v.changed(v.pod, true) }, time.Second, 1},
		{"a result", true, func(v *vigil) { v.result(lifecycle.Notified{}) }, time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder := record.NewFakeRecorder(10)
				v := newVigil()
				v.drainer = &drainer{events: events{recorder}}
				v.settings.Notify = &lifecycle.Notify{Method: "POST", Scheme: "http", Port: 8080, Path: "/"}
				if tc.order {
					v.order(lifecycle.Decision{Phase: lifecycle.Draining}, lifecycle.Observation{}, time.Now())
					v.answerTo(&caller{can: []string{lifecycle.CanRequest}, looks: true, mark: "1", had: time.Now()}, time.Now())
				}
				v.become(state{phase: lifecycle.Released, reason: lifecycle.Drained})
				go func() {
					<-time.After(time.Second)
					tc.do(v)
				}()
				began := time.Now()
				v.awaitResult(t.Context())
				if took := time.Since(began); took != tc.after || len(recorder.Events) != tc.said {
					t.Errorf("%d Events after %s, want %d after %s", len(recorder.Events), took, tc.said, tc.after)
				}
				if len(recorder.Events) > 0 {
					if said := <-recorder.Events; !strings.HasPrefix(said, "Warning NotifyFailed Whether ") || !strings.Contains(said, "is unknown: the pod was released before") {
						t.Errorf("said %q: it may have been told", said)
					}
				}
				<-time.After(time.Minute) // whatever comes later is not waited for
			})
		})
	}
}

// A request that went well is not sent again, whoever comes with whatever.
func TestNoticeWithResult(t *testing.T) {
	n := &notice{what: &lifecycle.Notify{Method: "POST"}, results: 1} // of an order of the helper before
	if got := orders(n, lifecycle.CanRequest, "a"); got != "" {
		t.Errorf("told %q", got)
	}
	n = &notice{what: &lifecycle.Notify{Method: "POST"}}
	orders(n, lifecycle.CanRequest, "a")
	n.results++
	if got := orders(n, lifecycle.CanRequest, "a", ""); got != "" {
		t.Errorf("told %q", got)
	}
}

// When it is due, and what is said where nobody is told.
func TestOrder(t *testing.T) {
	yes := true
	draining := lifecycle.Decision{Phase: lifecycle.Draining}
	serving := lifecycle.Decision{Phase: lifecycle.Serving}
	released := lifecycle.Decision{Phase: lifecycle.Released}
	hook := func(can ...string) func(*vigil) {
		return func(v *vigil) { v.met(&caller{can: can}) }
	}
	told := func(mark string) func(*vigil) {
		return func(v *vigil) {
			c := &caller{can: []string{lifecycle.CanRequest}, looks: true, mark: mark, had: time.Now()}
			v.answerTo(c, time.Now())
		}
	}
	for _, tc := range []struct {
		name   string
		signal bool
		before func(*vigil)
		first  lifecycle.Decision
		then   func(*vigil)
		after  time.Duration
		last   lifecycle.Decision
		due    bool
		says   string
	}{
		{"a restart of a container", false, nil, serving, nil, time.Hour, serving, false, ""},
		{"still routed", false, nil, lifecycle.Decision{Phase: lifecycle.Withdrawing}, nil, 0, lifecycle.Decision{Phase: lifecycle.Withdrawing}, false, ""},
		{"withdrawn", false, nil, draining, nil, 0, draining, true, ""},
		{"released at once", false, nil, released, nil, 0, released, false, ""},
		{"a helper that was restarted", false, func(v *vigil) { v.inherited = true }, draining, nil, time.Hour, draining, false, "this node's helper was restarted"},
		{"shared processes", true, func(v *vigil) { v.pod.Spec.ShareProcessNamespace = &yes }, draining, nil, 0, draining, false, "use a URL"},
		{"the node's processes", true, func(v *vigil) { v.pod.Spec.HostPID = true }, draining, nil, 0, draining, false, "with hostPID the first process is the node's: use a URL"},
		{"the node's processes and a request", false, func(v *vigil) { v.pod.Spec.HostPID = true }, draining, nil, 0, draining, true, ""},
		{"shared processes and a request", false, func(v *vigil) { v.pod.Spec.ShareProcessNamespace = &yes }, draining, nil, 0, draining, true, ""},
		{"only old hooks, so far", false, hook(), draining, nil, noticePatience - 1, draining, true, ""},
		{"only old hooks", false, hook(), draining, nil, noticePatience, draining, true, "is too old for it"},
		{"only the sidecar", true, hook(lifecycle.CanRequest), draining, nil, noticePatience, draining, true, "a signal needs the exec hook"},
		{"a hook that can do something else", false, hook(lifecycle.CanJudge), draining, nil, noticePatience, draining, true, "no hook of the pod is able to"},
		{"released before a hook came", false, hook(lifecycle.CanRequest), draining, nil, 0, released, true, "the pod was released before"},
		{"released as soon as it was withdrawn", false, nil, lifecycle.Decision{Phase: lifecycle.Released, Reason: lifecycle.Drained}, nil, 0, released, false, "the pod was released before that was due"},
		{"a hook that is at it", false, nil, draining, told("1"), resultPatience - 1, draining, true, ""},
		{"a hook that is gone", false, nil, draining, told("1"), resultPatience, draining, true, "is unknown: the hook that was to send it has not come back"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recorder := record.NewFakeRecorder(10)
				v := newVigil()
				v.drainer = &drainer{events: events{recorder}}
				v.settings.Notify = &lifecycle.Notify{Method: "POST", Scheme: "http", Port: 8080, Path: "/"}
				if tc.signal {
					v.settings.Notify = &lifecycle.Notify{Signal: "SIGUSR1"}
				}
				if tc.before != nil {
					tc.before(v)
				}
				v.order(tc.first, lifecycle.Observation{}, time.Now())
				if due := v.notice.what != nil; due != tc.due {
					t.Errorf("it is due: %t", due)
				}
				if tc.then != nil {
					tc.then(v)
				}
				<-time.After(tc.after)
				for range 3 {
					v.order(tc.last, lifecycle.Observation{}, time.Now())
				}
				close(recorder.Events)
				var said []string
				for e := range recorder.Events {
					said = append(said, e)
				}
				switch {
				case tc.says == "" && len(said) > 0:
					t.Errorf("said %q", said)
				case tc.says != "" && (len(said) != 1 || !strings.HasPrefix(said[0], "Warning NotifyFailed ") || !strings.Contains(said[0], tc.says)):
					t.Errorf("said %q, want once that %s", said, tc.says)
				}
			})
		})
	}
}

// While something new may come nobody is told, and the drain looks up again when that is over.
func TestOrderWaitsForNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVigil()
		v.drainer = &drainer{events: events{record.NewFakeRecorder(10)}}
		v.settings.Notify = &lifecycle.Notify{Method: "POST", Scheme: "http", Port: 8080, Path: "/"}
		began := time.Now()
		o := lifecycle.Observation{WithdrawnAt: began, LastNew: began, Policy: lifecycle.Policy{Settle: time.Hour}}
		draining := lifecycle.Decision{Phase: lifecycle.Draining, Next: began.Add(time.Hour)}
		for {
			now := time.Now()
			v.order(draining, o, now)
			if v.notice.what != nil {
				break
			}
			rest := v.rest(draining.Next, now)
			if rest <= 0 {
				t.Fatal("it does not rest")
			}
			<-time.After(rest)
		}
		if took := time.Since(began); took != lifecycle.DefaultNotifyAfter {
			t.Errorf("told after %s, want %s", took, lifecycle.DefaultNotifyAfter)
		}
	})
}
