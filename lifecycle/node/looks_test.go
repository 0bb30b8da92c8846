package node

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// still is a watch of which nothing comes.
type still struct{ watch }

func (still) Unreported() {}

func looking() *vigil {
	return &vigil{
		drainer: &drainer{}, watch: still{},
		drain: newDrain(podWithGrace(60, 60), time.Now(), false, Config{Logger: slog.New(slog.DiscardHandler)}),
	}
}

// A hook that reports could not be heard while this process stood still.
func TestStandstillIsNoSilenceOfTheHook(t *testing.T) {
	t.Parallel()
	v, now := looking(), time.Now()
	v.sockets.contact = now.Add(-time.Minute)
	v.looks.round = now.Add(-time.Minute)
	zero := conntrack.Counts{Known: true}
	if !v.consult(zero, now) {
		t.Error("a zero that no look has confirmed stands after a standstill")
	}
	v.sockets.contact = now.Add(-time.Minute) // it goes on without a word from the hook
	if v.consult(zero, now) {
		t.Error("the hook is waited for, though it had its time")
	}
}

// Before a release the sockets are looked at once more, if the last look is not of a
// moment ago.
func TestLastLook(t *testing.T) {
	t.Parallel()
	now := time.Now()
	drained := lifecycle.Decision{Phase: lifecycle.Released, Reason: lifecycle.Drained}
	for _, tc := range []struct {
		name   string
		d      lifecycle.Decision
		change func(*vigil, *lifecycle.Observation)
		held   bool
	}{
		{"an old look", drained, func(*vigil, *lifecycle.Observation) {}, true},
		{"a fresh one", drained, func(v *vigil, _ *lifecycle.Observation) { v.looks.arrived = now.Add(-lookFresh) }, false},
		{"nobody who could look", drained, func(v *vigil, _ *lifecycle.Observation) { v.sockets.contact = time.Time{} }, false},
		{"past the deadline", drained, func(_ *vigil, o *lifecycle.Observation) { o.Deadline = now }, false},
		{"sessions do not matter", drained, func(_ *vigil, o *lifecycle.Observation) { o.Policy.Until = lifecycle.UntilWithdrawn }, false},
		{"another reason", lifecycle.Decision{Phase: lifecycle.Released, Reason: lifecycle.ReleasedByUser}, func(*vigil, *lifecycle.Observation) {}, false},
	} {
		v := looking()
		v.sockets.contact = now
		v.looks.arrived = now.Add(-lookFresh - time.Second)
		o := lifecycle.Observation{Deadline: now.Add(time.Minute)}
		tc.change(v, &o)
		got := v.lastLook(tc.d, o, now)
		if held := got.Phase != lifecycle.Released; held != tc.held || !held && got != tc.d {
			t.Errorf("%s: %+v", tc.name, got)
		}
		if tc.held && (!got.Next.After(now) || got.Next.After(o.Deadline)) {
			t.Errorf("%s: looks again at %s", tc.name, got.Next)
		}
	}
}

// Where nothing names a pod's ports, a port that any of its hooks has seen a listener on
// is one of its server, also when it is closed by now and another hook looks.
func TestClosedListenerThatAnotherHookSaw(t *testing.T) {
	t.Parallel()
	v := looking()
	v.target.Addresses = []netip.Addr{netip.MustParseAddr("10.244.1.7")}
	v.pod.Spec.Containers = []corev1.Container{{}}
	client := lifecycle.Socket{Local: netip.MustParseAddrPort("10.244.1.7:8080"), Peer: netip.MustParseAddrPort("10.244.2.9:40000")}
	own := lifecycle.Socket{Local: netip.MustParseAddrPort("10.244.1.7:41000"), Peer: netip.MustParseAddrPort("10.0.0.5:5432")}
	now := time.Now()
	v.sockets.leave(v.hear(lifecycle.DrainRequest{Sockets: &lifecycle.SocketList{Listening: []uint16{8080}, Inbound: []lifecycle.Socket{client}}}, now))
	v.reports()
	v.sockets.leave(v.hear(lifecycle.DrainRequest{Sockets: &lifecycle.SocketList{Other: []lifecycle.Socket{client, own}}}, now))
	r := v.ready(*v.reports())
	if len(r.Sockets) != 1 || r.Sockets[0].Peer != client.Peer || len(r.Local) != 1 {
		t.Errorf("sessions %v, beside them %v", r.Sockets, r.Local)
	}
}
