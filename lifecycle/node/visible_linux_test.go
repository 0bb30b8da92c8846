package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

// These tests are what people see of a drain, with a real pod's network on a real
// kernel.

// Each figure of the design that a drain moves, once.
func TestMetricsOfADrain(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	l := s.serve()
	s.metric(`conndrain_build_info{version="v0-test"} 1`)
	s.metric(`conndrain_disabled 0`)
	s.metric(`conndrain_snapshot_duration_seconds_count 0`)
	s.metric(`conndrain_release_delay_seconds_count 0`)
	older := s.connect(l)
	s.delete(60)
	before := s.connect(l) // while the pod is still routed
	s.reachesPhase(lifecycle.Withdrawing)
	s.withdraw()
	s.reaches(lifecycle.Draining, 2)
	s.metric(`conndrain_new_sessions_after_withdrawal_total 0`)
	after := s.connect(l)
	s.reaches(lifecycle.Draining, 3)
	s.metric(`conndrain_new_sessions_after_withdrawal_total 1`)
	s.metric(`conndrain_pod_sessions{namespace="shop",pod="web-1",state="open"} 3`)
	s.metric(`conndrain_pod_sessions{namespace="shop",pod="web-1",state="idle"} 0`)
	s.metric(`conndrain_pod_sessions{namespace="shop",pod="web-1",state="lost"} 0`)
	s.metric(`conndrain_events_lost_total 0`)
	for _, c := range []session{older, before, after} {
		c.end(t)
	}
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s", a.Reason)
	}
	s.metric(`conndrain_release_delay_seconds_count 1`)
	s.hook() // a hook that is run again is not another release
	s.metric(`conndrain_release_delay_seconds_count 1`)
	if got := s.metrics(); strings.Contains(got, "conndrain_pod_sessions{") {
		t.Errorf("a pod that is let go still has series:\n%s", got)
	}
	if got := s.metrics(); strings.Contains(got, "conndrain_snapshot_duration_seconds_count 0\n") {
		t.Error("no snapshot is counted")
	}
	s.metric(`conndrain_missed_hooks_total 0`)
}

// A pod with a hook that is gone without a call of it is counted.
func TestMissedHookIsCounted(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	s.delete(60)
	must(t, s.api.CoreV1().Pods(namespace).Delete(t.Context(), podName, metav1.DeleteOptions{}))
	s.metric(`conndrain_missed_hooks_total 1`)
	s.eventNaming("MissedHook: ", "never reached this node's helper")
}

// A pod that flaps between settling and draining makes no more Events than another.
func TestFlappingMakesNoEvents(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, lifecycle.Policy{Settle: 3 * time.Second, SettleMax: time.Minute})
	l := s.serve()
	s.delete(900)
	s.withdraw()
	const times = 5
	for i := range times {
		c := s.connect(l)
		s.reaches(lifecycle.Draining, 1)
		c.end(t)
		s.reachesPhase(lifecycle.Settling)
		if i == 0 {
			s.eventNaming("Draining: Waiting up to", "for 1 session")
		}
	}
	s.hook()
	s.eventNaming("Drained: The last session has ended", fmt.Sprintf("%d began during the drain", times-1)) // the first was there before
	if all := s.events(); len(all) != 2 {
		t.Errorf("%d Events, want 2: %q", len(all), all)
	}
}

// Where the sessions cannot be read, the pod's Events say so while it is held and
// when its time is up.
func TestUnknownSessionsAreSaid(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Policy = quick })
	s.helper.drainer.open = func(context.Context, conntrack.Target) (watch, error) {
		return nil, fmt.Errorf("join event groups: %w", conntrack.ErrPermission)
	}
	s.start()
	s.delete(12)
	s.withdraw()
	a := s.hook()
	if a.Reason != lifecycle.Expired || a.Open != nil {
		t.Errorf("answer %+v, want expired with nothing known", a)
	}
	s.eventNaming("Draining: Waiting up to", "unknown whether sessions are open", "CAP_NET_ADMIN")
	s.eventNaming("DrainExpired", "what was cut is unknown", "CAP_NET_ADMIN")
	if d := s.status().Drains[0]; d.Open != nil || !strings.Contains(d.Unknown, "CAP_NET_ADMIN") {
		t.Errorf("status %+v", d)
	}
}

// A helper that is switched off holds every pod for its hook's fallback sleep, from
// the hook's start, and reads nothing.
func TestDisabledOnlySleeps(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Policy, c.Disabled = quick, true })
	s.start()
	s.connect(s.serve())
	s.metric(`conndrain_disabled 1`)
	s.delete(900)
	begin := time.Now()
	ask := func() lifecycle.DrainAnswer {
		return s.ask(lifecycle.DrainRequest{FallbackSleepSeconds: 6, ElapsedSeconds: 3 + time.Since(begin).Seconds(), WaitSeconds: 1})
	}
	a := ask()
	if left, ok := a.Remaining(); a.Released() || !ok || left > 3*time.Second {
		t.Errorf("answer %+v, want at most 3 s to sleep", a)
	}
	if n := s.status(); !n.Disabled || len(n.Drains) != 1 || n.Drains[0].Phase != "draining" || !strings.Contains(n.Drains[0].Unknown, "CONNDRAIN_DISABLE") {
		t.Errorf("status %+v", n)
	}
	for !a.Released() {
		a = ask()
	}
	took := time.Since(begin)
	if a.Reason != lifecycle.Disabled || took < 2900*time.Millisecond || took > 8*time.Second {
		t.Errorf("%s after %s, want %s 6 s after the hook's start, which was 3 s before", a.Reason, took, lifecycle.Disabled)
	}
	s.eventNaming("DrainDisabled: Sleeping", "CONNDRAIN_DISABLE")
	s.metric(`conndrain_drain_duration_seconds_count{reason="Disabled"} 1`)
	s.metric(`conndrain_snapshot_duration_seconds_count 0`)
	if n := len(s.events()); n != 1 {
		t.Errorf("%d Events: %q", n, s.events())
	}
}

// Never longer than the pod has, and a hook that says nothing sleeps as long as the
// default; a person can end it.
func TestDisabledSleepIsBounded(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Disabled = true })
	s.start()
	s.reachesPhase(lifecycle.Draining)
	a := s.ask(lifecycle.DrainRequest{})
	if left, ok := a.Remaining(); !ok || left > lifecycle.DefaultFallbackSleep || left < lifecycle.DefaultFallbackSleep-5*time.Second {
		t.Errorf("answer %+v, want some %s", a, lifecycle.DefaultFallbackSleep)
	}
	s.delete(5)
	s.eventually("the budget of a shorter grace binds", func() error {
		if left, _ := s.ask(lifecycle.DrainRequest{}).Remaining(); left > 4*time.Second {
			return fmt.Errorf("%s remain", left)
		}
		return nil
	})
	r := s.release(lifecycle.ReleaseRequest{All: true, By: "alice"})
	if len(r.Released) != 1 || r.Released[0].Reason != lifecycle.ReleasedByUser {
		t.Errorf("released %+v", r)
	}
	s.eventNaming("DrainReleased: Released by alice", "unknown")
}

// Which sessions a pod without a hook has when it is deleted is told, once and of
// the ports that its Service has.
func TestObserved(t *testing.T) {
	t.Parallel()
	s := newObserved(t)
	server := s.serve()
	c := s.connect(server)
	probe, err := s.lab.Node.Dial(t.Context(), "tcp", netip.AddrPortFrom(s.lab.PodAddr, s.lab.PodPort).String())
	must(t, err)
	t.Cleanup(func() { _ = probe.Close() })
	s.delete(30)
	s.eventNaming("SessionsAtDeletion: 1 session was open", "nothing waits for it,", c.client.LocalAddr().String(), "port 8080/tcp", "no container has a preStop hook of conndrain")
	s.metric(`conndrain_observed_deletions_total{result="sessions"} 1`)
	s.metric(`conndrain_sessions_at_deletion_total 1`)
	s.metric(`conndrain_drains{phase="draining"} 0`)
	if lists := s.lists("endpointslices"); lists != 1 {
		t.Errorf("slices were listed %d times, want once", lists)
	}
	if s.watches("endpointslices") != 0 {
		t.Error("slices are watched")
	}
	if all := s.events(); len(all) != 1 {
		t.Errorf("Events %q, want one", all)
	}
}

func withoutHook(p *corev1.Pod) { p.Spec.Containers[0].Lifecycle = nil }

// newObserved is a scene of a pod without a hook that is observed.
func newObserved(t *testing.T) *scene {
	t.Helper()
	s := prepareScene(t, netlab.LabOptions{}, withoutHook, func(c *Config) {
		c.Policy, c.Observe = quick, conntrack.NewReader(conntrack.Config{})
	})
	s.helper.observer.reader = conntrack.NewReader(conntrack.Config{NetNS: s.lab.Node.FD(), Snapshot: conntrack.Stream})
	s.start()
	return s
}

// A second deletion right after the first one waits for the next look, and is late
// if its pod is gone by then.
func TestObservedAtMostEveryTenSeconds(t *testing.T) {
	t.Parallel()
	s := newObserved(t)
	pods := s.api.CoreV1().Pods(namespace)
	second := newPod(s.lab, "uid-2")
	withoutHook(second)
	second.Name, second.Status.PodIPs = "web-2", []corev1.PodIP{{IP: "192.0.2.2"}}
	_, err := pods.Create(t.Context(), second, metav1.CreateOptions{})
	must(t, err)
	s.eventually("the second pod is known", func() error {
		if _, ok, err := s.helper.pods.informer.GetStore().GetByKey(namespace + "/web-2"); err != nil || !ok {
			return errors.New("not yet")
		}
		return nil
	})
	s.delete(30)
	s.metric(`conndrain_observed_deletions_total{result="none"} 1`)
	now, grace := metav1.Now(), int64(30)
	second.DeletionTimestamp, second.DeletionGracePeriodSeconds = &now, &grace
	_, err = pods.Update(t.Context(), second, metav1.UpdateOptions{})
	must(t, err)
	must(t, pods.Delete(t.Context(), "web-2", metav1.DeleteOptions{}))
	s.metric(`conndrain_observed_deletions_total{result="late"} 1`)
	if lists := s.lists("endpointslices"); lists != 1 {
		t.Errorf("slices were listed %d times, want once", lists)
	}
}

// A pod that no Service selects is nobody's, and one whose slices cannot be listed
// is not taken for it.
func TestObservedWithoutService(t *testing.T) {
	t.Parallel()
	s := newObserved(t)
	must(t, s.api.DiscoveryV1().EndpointSlices(namespace).Delete(t.Context(), "web-abc", metav1.DeleteOptions{}))
	s.connect(s.serve())
	s.delete(30)
	s.metric(`conndrain_observed_deletions_total{result="noservice"} 1`)
	if all := s.events(); len(all) != 0 {
		t.Errorf("Events %q, want none", all)
	}
}

func TestObservedWithoutSlices(t *testing.T) {
	t.Parallel()
	s := newObserved(t)
	s.api.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	s.connect(s.serve())
	s.delete(30)
	s.metric(`conndrain_observed_deletions_total{result="unknown"} 1`)
}

// reachesPhase waits until the drain is in the phase.
func (s *scene) reachesPhase(phase lifecycle.Phase) {
	s.Helper()
	s.eventually("phase "+phase.String(), func() error {
		if a := s.ask(lifecycle.DrainRequest{}); a.Phase != phase.String() {
			return errors.New("phase is " + a.Phase)
		}
		return nil
	})
}

// lists and watches count what the API was asked for.
func (s *scene) lists(resource string) int { return s.asked("list", resource) }

func (s *scene) watches(resource string) int { return s.asked("watch", resource) }

func (s *scene) asked(verb, resource string) int {
	n := 0
	for _, a := range s.api.Actions() {
		if a.Matches(verb, resource) {
			n++
		}
	}
	return n
}
