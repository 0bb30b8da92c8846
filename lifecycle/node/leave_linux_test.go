package node

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/lifecycle"
)

// A hook that can tell requests is permitted to after the withdrawal and the quiet time,
// with what it has to know; its last word ends the drain for all hooks.
func TestLeaveEndsAllHooks(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(p *corev1.Pod) {
		until("requests")(p)
		p.Annotations["conndrain.io/quiet"], p.Annotations["conndrain.io/busy-after"] = "7s", "0s"
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{Name: "admin", ContainerPort: 9090})
	}, quick)
	c := s.connect(s.serve())
	scrape := s.connectTo(s.listen(9090), netip.AddrPortFrom(s.lab.PodAddr, 9090))
	j := s.judge(c, scrape)
	s.delete(60)
	s.reaches(lifecycle.Withdrawing, 1)
	if a := j.polls(0); a.WhenQuiet != nil {
		t.Errorf("permitted before the withdrawal: %+v", a.WhenQuiet)
	}
	began := time.Now()
	s.withdraw()
	q := j.permitted(true).WhenQuiet
	if settled := time.Since(began); settled < quick.Settle {
		t.Errorf("permitted after %s, before the quiet time has passed", settled)
	}
	if !q.Requests.Has(clientOf(c)) || len(q.Requests) != 1 || !q.Ignored.Has(clientOf(scrape)) || len(q.Strict) > 0 ||
		!slices.Equal(q.IgnoredPorts, []uint16{9090}) || q.QuietSeconds != 7 || q.BusyAfterSeconds != 0 {
		t.Errorf("permission %+v", q)
	}
	j.says = &lifecycle.RequestReport{
		Classes: map[string]lifecycle.PeerSet{"between": {clientOf(c): {}, clientOf(scrape): {}}}, Counts: map[string]int{"between": 2},
	}
	j.polls(0)
	if d := s.status().Drains[0]; d.Between == nil || *d.Between != 1 || len(d.Peers) != 1 || d.Peers[0].Request != "between" {
		t.Errorf("status %+v", d)
	}
	s.metric(`conndrain_sessions{state="between_requests"} 1`)
	s.metric(`conndrain_pod_sessions{namespace="shop",pod="web-1",state="open"} 0`)
	all := make(chan lifecycle.DrainAnswer, 2)
	for range cap(all) {
		go func() { all <- s.hook() }() // of other containers, and older
	}
	if a := s.ask(lifecycle.DrainRequest{}); a.Released() || a.WhenQuiet != nil {
		t.Errorf("a hook that cannot judge gets %+v", a)
	}
	j.leaves(0)
	for range cap(all) {
		if a := <-all; a.Reason != lifecycle.Drained {
			t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
		}
	}
	s.eventNaming("Draining: Waiting up to", "for a moment without a request on 1 session: "+clientOf(c).String())
	s.eventNaming("Drained: No request was in flight on the 1 session left; released")
	s.metric(`conndrain_sessions_cut_total{activity="active"} 0`)
}

// A pod that is gone by its hook without the last word has an Event, too, and nothing is
// counted of which nobody knows.
func TestLeaveThatNobodyHears(t *testing.T) {
	t.Parallel()
	s := newScene(t, until("requests"), quick)
	j := s.judge(s.connect(s.serve()))
	s.delete(60)
	s.withdraw()
	j.permitted(true)
	must(t, s.api.CoreV1().Pods(namespace).Delete(t.Context(), podName, deleteNow))
	s.eventNaming("Drained: Its hook is gone, and the last word of that has not come.", "whether requests were cut is unknown; noticed ")
	s.metric(`conndrain_drain_duration_seconds_count{reason="Drained"} 1`)
	s.metric(`conndrain_sessions_cut_total{activity="active"} 0`)
	s.metric(`conndrain_sessions_cut_total{activity="quiet"} 0`)
}

// So it is where the application ends its connections and goes on for longer.
func TestLeaveThatNobodyHearsOfAServerThatGoesOn(t *testing.T) {
	t.Parallel()
	s := newScene(t, until("requests"), quick)
	c := s.connect(s.serve())
	j := s.judge(c)
	s.delete(60)
	s.withdraw()
	j.permitted(true)
	c.end(t)
	s.eventNaming("Drained: Its hook is gone, and the last word of that has not come.")
	s.metric(`conndrain_sessions_cut_total{activity="active"} 0`)
}

// What has to be cut is told and counted, and never more than there is.
func TestLeaveThatCuts(t *testing.T) {
	t.Parallel()
	s := newScene(t, until("requests-strict"), quick)
	c := s.connect(s.serve())
	j := s.judge(c)
	s.delete(60)
	s.withdraw()
	if q := j.permitted(true).WhenQuiet; len(q.Requests) > 0 || !q.Strict.Has(clientOf(c)) || q.QuietSeconds != 10 || q.BusyAfterSeconds != 10 {
		t.Errorf("permission %+v", q)
	}
	j.leaves(1000)
	s.eventNaming("Drained: 1 request cut on the 1 session left, because no moment came without one (conndrain.io/busy-after); released")
	s.metric(`conndrain_sessions_cut_total{activity="active"} 1`)
}

// leftBeforeTheOthers is a pod of two hooks of which one has left and cut a request, while a
// session holds the other.
func leftBeforeTheOthers(t *testing.T) (*scene, *judge, session) {
	t.Helper()
	s := newScene(t, annotated(map[string]string{"conndrain.io/until": "9000=sessions,requests", "conndrain.io/ports": "http,9000"}), quick)
	c := s.connect(s.serve())
	other := s.listen(9000)
	one, two := s.judge(c), s.judge(c)
	s.delete(900)
	s.withdraw()
	one.permitted(true)
	db := s.connectTo(other, netip.AddrPortFrom(s.lab.PodAddr, 9000))
	one.sees(c, db)
	two.sees(c, db)
	two.permitted(false)
	one.leaves(1)
	must(t, c.server.(*net.TCPConn).SetLinger(0))
	must(t, c.server.Close())
	two.sees(db)
	s.reaches(lifecycle.Draining, 1)
	return s, two, db
}

// A hook that leaves as something begins to hold the others has cut what was in flight on its
// container's connections: that is told and counted with the end of the rest.
func TestLeaveBeforeTheOthers(t *testing.T) {
	t.Parallel()
	s, two, db := leftBeforeTheOthers(t)
	db.end(t)
	two.sees()
	if a := two.released(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
	s.eventNaming("Drained: The last session has ended, 1 began during the drain; 1 request was in flight when one of its hooks returned before the rest")
	s.metric(`conndrain_sessions_cut_total{activity="active"} 1`)
}

// So it is where somebody ends the wait of the rest.
func TestLeaveBeforeTheOthersAreReleased(t *testing.T) {
	t.Parallel()
	s, two, _ := leftBeforeTheOthers(t)
	s.release(lifecycle.ReleaseRequest{All: true, By: "bob"})
	if a := two.released(); a.Reason != lifecycle.ReleasedByUser {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.ReleasedByUser)
	}
	s.eventNaming("DrainReleased: Released by bob after", "with 1 session left", "; 1 request was in flight when one of its hooks returned before the rest")
	s.metric(`conndrain_sessions_cut_total{activity="active"} 1`)
}
