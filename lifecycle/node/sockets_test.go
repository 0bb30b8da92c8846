package node

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

func TestMarks(t *testing.T) {
	now := time.Now()
	c := clock{name: "ABCD2345", start: now.Add(-time.Hour)}
	if at, ok := c.moment(c.mark(now), now); !ok || !at.Equal(now) {
		t.Errorf("moment %s %t, want %s", at, ok, now)
	}
	other := clock{name: "EFGH6789", start: c.start}
	for name, mark := range map[string]string{
		"none": "", "of a helper before": other.mark(now), "of the future": c.mark(now.Add(time.Second)),
		"of before the helper": c.mark(c.start.Add(-time.Second)), "garbage": "ABCD2345-?", "only a name": "ABCD2345",
	} {
		if at, ok := c.moment(mark, now); ok {
			t.Errorf("%s: %q is %s", name, mark, at)
		}
	}
}

// A look is as old as its mark says; without one, older than it says itself.
func TestAgeOfAReport(t *testing.T) {
	now := time.Now()
	d := newDrain(podWithGrace(30, -1), now, true, Config{Logger: slog.New(slog.DiscardHandler)})
	age := func(l lifecycle.SocketList) time.Duration {
		d.reported = nil
		d.sockets.leave(d.hear(lifecycle.DrainRequest{Sockets: &l}, now))
		return now.Sub(d.reported.At)
	}
	if got := age(lifecycle.SocketList{Mark: marks.mark(marks.start)}); got != now.Sub(marks.start) {
		t.Errorf("a look with the mark of the start is %s old", got)
	}
	if got := age(lifecycle.SocketList{AgeSeconds: 0.5, Mark: "EFGH6789-1"}); got != 500*time.Millisecond+unmarkedSlack {
		t.Errorf("a look with the mark of another helper is %s old", got)
	}
	if look := d.hear(lifecycle.DrainRequest{Serves: []uint16{10942}}, now); look != nil {
		t.Error("a hook that does not report is asked to")
	}
	if got := d.sockets.ownPorts(); !slices.Equal(got, []uint16{10942}) {
		t.Errorf("own ports %v", got)
	}
}

// One hook is asked at a time, the one that has waited for longest; if none is
// there, the next one's report is the answer.
func TestAsksOneHookAtATime(t *testing.T) {
	var s sockets
	asked := func(look <-chan struct{}) bool {
		select {
		case <-look:
			return true
		default:
			return false
		}
	}
	s.ask() // nobody is there
	first, second, third := s.park(), s.park(), s.park()
	if asked(first) {
		t.Error("asked for what it has just brought")
	}
	s.leave(first)
	s.ask()
	if asked(first) || !asked(second) || asked(third) {
		t.Error("not the one that has waited for longest was asked, or more than it")
	}
	s.leave(second)
	s.leave(nil)
	s.ask()
	if !asked(third) {
		t.Error("the last one was not asked")
	}
}

// A hook that is killed is waited for no longer than one that comes back needs.
func TestReporterIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sockets
		if s.reporting(time.Now()) {
			t.Error("somebody reports before anybody has")
		}
		look := s.park()
		<-time.After(time.Hour)
		if !s.reporting(time.Now()) {
			t.Error("a hook that is held does not report")
		}
		s.leave(look)
		if left := time.Now(); !s.reporting(left.Add(reporterPatience-1)) || s.reporting(left.Add(reporterPatience)) {
			t.Error("it is not waited for, or for ever")
		}
	})
}

func TestPause(t *testing.T) {
	start := time.Now()
	known := looks{at: start, arrived: start, taken: firstLooks, knownSince: start.Add(-time.Minute)}
	zero := known
	zero.zeroSince = start.Add(-time.Second)
	for _, tc := range []struct {
		name   string
		l      looks
		c      conntrack.Counts
		want   time.Duration
		wanted bool
	}{
		{"a new watch", looks{}, conntrack.Counts{}, lookSoon, true},
		{"unknown", known, conntrack.Counts{}, 0, false},
		{"just known", looks{at: start, arrived: start, knownSince: start.Add(1)}, conntrack.Counts{Known: true, Open: 1}, lookSoon, true},
		{"just zero", looks{at: start, arrived: start, knownSince: start.Add(-2), zeroSince: start.Add(1)}, conntrack.Counts{Known: true}, lookSoon, true},
		{"at first", looks{at: start, arrived: start, knownSince: start.Add(-1), taken: 1}, conntrack.Counts{Known: true, Open: 3}, lookSlowly, true},
		{"open", known, conntrack.Counts{Known: true, Open: 3}, 0, false},
		{"held by a socket", known, conntrack.Counts{Known: true, Open: 3, Held: 1}, lookOften, true},
		{"only lost", known, conntrack.Counts{Known: true, Lost: 2}, lookOften, true},
		{"lost beside open", known, conntrack.Counts{Known: true, Open: 1, Lost: 2}, lookSlowly, true},
		{"possibly blind", known, conntrack.Counts{Known: true, Open: 1, ReportsPending: true}, lookSlowly, true},
		{"zero", zero, conntrack.Counts{Known: true}, lookSlowly, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, wanted := tc.l.pause(tc.c); got != tc.want || wanted != tc.wanted {
				t.Errorf("%s %t, want %s %t", got, wanted, tc.want, tc.wanted)
			}
		})
	}
}

// A zero stands only on a look that began after it and is not old.
func TestLookConfirmsZero(t *testing.T) {
	zero := time.Now()
	for _, tc := range []struct {
		name  string
		l     looks
		after time.Duration
		want  bool
	}{
		{"no zero", looks{at: zero, arrived: zero}, 0, false},
		{"a look before it", looks{zeroSince: zero, at: zero.Add(-1), arrived: zero.Add(time.Second)}, time.Second, false},
		{"a look after it", looks{zeroSince: zero, at: zero, arrived: zero.Add(time.Second)}, time.Second, true},
		{"an old look", looks{zeroSince: zero, at: zero, arrived: zero}, lookValid + 1, false},
	} {
		if got := tc.l.confirms(zero.Add(tc.after)); got != tc.want {
			t.Errorf("%s: confirms %t", tc.name, got)
		}
	}
}

func TestPortsOfBlindSockets(t *testing.T) {
	container := func(ports ...corev1.ContainerPort) corev1.Container { return corev1.Container{Ports: ports} }
	port := func(name string, n int32) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: n}
	}
	app := container(port("http", 8080), port("admin", 9090))
	for _, tc := range []struct {
		name       string
		containers []corev1.Container
		served     []uint16
		want       []uint16 // of 8080, 9090, 15006; nil is every one
	}{
		{"nothing is known", []corev1.Container{container()}, nil, nil},
		{"every port is served", []corev1.Container{app}, []uint16{8080, 9090}, nil},
		{"a port beside the served one", []corev1.Container{app}, []uint16{8080}, []uint16{8080, 15006}},
		{"a proxy that declares its port", []corev1.Container{app, container(port("proxy", 15006))}, []uint16{8080}, []uint16{8080, 15006}},
		{"metrics of another container", []corev1.Container{container(port("http", 8080)), container(port("metrics", 9090))}, []uint16{8080}, []uint16{8080, 15006}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: tc.containers}}
			var sockets []conntrack.Socket
			for _, n := range []uint16{8080, 9090, 15006} {
				sockets = append(sockets, conntrack.Socket{Local: netip.AddrPortFrom(netip.MustParseAddr("10.244.1.7"), n)})
			}
			got := blindPorts(sockets, tc.served, sideways(pod, tc.served))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
		})
	}
}

// A look that is older than the last one is not what a release waits for.
func TestOlderLookIsNoNewOne(t *testing.T) {
	now := time.Now()
	var l looks
	l.handed(conntrack.SocketReport{At: now}, now)
	l.handed(conntrack.SocketReport{At: now.Add(-time.Second)}, now.Add(time.Second))
	if l.arrived != now || l.taken != 1 {
		t.Errorf("arrived %s later, %d taken", l.arrived.Sub(now), l.taken)
	}
}
