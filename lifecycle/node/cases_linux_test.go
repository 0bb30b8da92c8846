package node

import (
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// These tests are cases from the field, by their numbers, with a real pod's
// network on a real kernel.

// P1: a hook of a pod that is not deleted returns at once, again and again, and
// leaves nothing behind: a later deletion is a drain of its own.
func TestP1NotTerminating(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	c := s.connect(s.serve())
	for range 2 {
		if a := s.hook(); a.Reason != lifecycle.NotTerminating {
			t.Fatalf("reason %s, want %s", a.Reason, lifecycle.NotTerminating)
		}
	}
	s.delete(60)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	c.end(t)
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
}

// P6: a session that is open when the pod is deleted holds it until it is closed.
func TestP6WaitsForTheLastSession(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	l := s.serve()
	older := s.connect(l)
	s.delete(60)
	s.eventually("withdrawing", func() error {
		a := s.ask(lifecycle.DrainRequest{})
		if a.Phase != "withdrawing" || a.RemainingSeconds == nil || *a.RemainingSeconds > 50 || *a.RemainingSeconds < 40 {
			return errors.New("phase is " + a.Phase)
		}
		return nil
	})
	newer := s.connect(l)
	s.withdraw()
	s.reaches(lifecycle.Draining, 2)
	s.eventNaming("Draining: Waiting up to", older.client.LocalAddr().String(), "port 8080/tcp")
	s.metric(`conndrain_drains{phase="draining"} 1`)
	s.metric(`conndrain_sessions{state="open"} 2`)

	released := make(chan lifecycle.DrainAnswer, 1)
	begin := time.Now()
	go func() { released <- s.hook() }()
	older.end(t)
	s.reaches(lifecycle.Draining, 1)
	select {
	case a := <-released:
		t.Fatalf("released with a session: %+v", a)
	case <-time.After(quick.Settle + time.Second):
	}
	ended := time.Now()
	newer.end(t)
	a := <-released
	if a.Reason != lifecycle.Drained || a.Cut != nil {
		t.Errorf("answer %+v, want drained with nothing cut", a)
	}
	t.Logf("held for %s, released %s after the last session's end", ended.Sub(begin), time.Since(ended))
	s.eventNaming("Drained: The last session has ended")
	s.metric(`conndrain_drains{phase="released"} 1`)
	s.metric(`conndrain_sessions{state="open"} 0`)
	s.metric(`conndrain_drain_duration_seconds_count{reason="Drained"} 1`)

	// The kubelet may run the hook again: it joins what has been.
	if again := s.ask(lifecycle.DrainRequest{}); again.Reason != lifecycle.Drained {
		t.Errorf("a second hook got %+v", again)
	}
	if n := len(s.events()); n != 2 {
		t.Errorf("%d Events, want one for each of two changes: %q", n, s.events())
	}
}

// P7: a session that never ends is cut at the deadline, counted and named.
func TestP7ExpiresAtTheDeadline(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	c := s.connect(s.serve())
	begin := time.Now()
	s.delete(5)
	s.withdraw()
	a := s.hook()
	took := time.Since(begin)
	if a.Reason != lifecycle.Expired || a.Cut == nil || *a.Cut != 1 || *a.RemainingSeconds != 0 {
		t.Errorf("answer %+v, want expired with one cut and no time left", a)
	}
	// Five seconds less a reserve of a fifth.
	if took < 4*time.Second || took > 6*time.Second {
		t.Errorf("held for %s, want 4s", took)
	}
	s.eventNaming("DrainExpired: The time was up after 4.0 s: 1 session cut", c.client.LocalAddr().String())
	s.metric(`conndrain_sessions_cut_total{activity="active"} 1`)
	s.metric(`conndrain_sessions_cut_total{activity="quiet"} 0`)
	s.metric(`conndrain_drain_duration_seconds_count{reason="Expired"} 1`)
}

// P10: what the pod itself has opened does not hold it.
func TestP10OutboundDoesNotHold(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	database, err := s.lab.Client.Listen(t.Context(), "tcp", netip.AddrPortFrom(s.lab.ClientAddr, 5432).String())
	must(t, err)
	defer database.Close()
	pool, err := s.lab.Pod.Dial(t.Context(), "tcp", database.Addr().String())
	must(t, err)
	defer pool.Close()
	s.delete(60)
	s.withdraw()
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
}

// P16: slices that never change hold the pod for the withdrawal's time only.
func TestP16SlicesNeverChange(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	begin := time.Now()
	s.delete(10)
	a := s.hook()
	// A third of eight seconds, and the quiet time.
	if took := time.Since(begin); a.Reason != lifecycle.Drained || took < 2900*time.Millisecond || took > 5*time.Second {
		t.Errorf("%s after %s, want %s after 3s", a.Reason, took, lifecycle.Drained)
	}
}

// P24: a pod that takes over the address of another one inherits nothing of its
// drain, and while two seem to have it nobody is taken for either.
func TestP24AddressReused(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	s.connect(s.serve())
	s.delete(3)
	s.withdraw()
	if a := s.hook(); a.Reason != lifecycle.Expired {
		t.Fatalf("reason %s, want %s", a.Reason, lifecycle.Expired)
	}
	heir := newPod(s.lab, "uid-2")
	heir.Name = "web-2"
	pods := s.api.CoreV1().Pods(namespace)
	_, err := pods.Create(t.Context(), heir, metav1.CreateOptions{})
	must(t, err)
	s.eventually("two pods have the address", func() error {
		if a, status := s.post(lifecycle.DrainRequest{}); status != http.StatusServiceUnavailable {
			return errors.New("answer is " + a.Phase)
		}
		return nil
	})
	must(t, pods.Delete(t.Context(), podName, metav1.DeleteOptions{}))
	s.eventually("the heir is known", func() error {
		if a, status := s.post(lifecycle.DrainRequest{}); status != http.StatusOK {
			return errors.New(a.Message)
		}
		return nil
	})
	if a := s.hook(); a.Reason != lifecycle.NotTerminating {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.NotTerminating)
	}
}

// P26: a kubelet's probes do not keep the quiet time from ending.
func TestP26ProbesDoNotRestartSettle(t *testing.T) {
	t.Parallel()
	policy := lifecycle.Policy{Settle: 2 * time.Second, SettleMax: 30 * time.Second}
	s := newScene(t, nil, policy)
	l := s.serve()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			probe, err := s.lab.Node.Dial(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			server, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = probe.Close(), server.Close()
		}
	}()
	s.delete(60)
	s.withdraw()
	begin := time.Now()
	a := s.hook()
	took := time.Since(begin)
	close(stop)
	<-done
	if a.Reason != lifecycle.Drained || took > policy.Settle+2*time.Second {
		t.Errorf("%s after %s, want %s after %s", a.Reason, took, lifecycle.Drained, policy.Settle)
	}
}

// P27: a second, shorter delete counts from the first hook's start and not from its
// own moment, and the hook that the kubelet runs again joins.
func TestP27SecondShorterDelete(t *testing.T) {
	t.Parallel()
	const before, budget = 6 * time.Second, 8 * time.Second // of a grace of ten
	s := newScene(t, nil, quick)
	s.connect(s.serve())
	s.delete(900)
	s.withdraw()
	first := s.prestop()
	s.says(first, "to=draining")
	long := s.reaches(lifecycle.Draining, 1)
	if left, _ := long.Remaining(); left < 880*time.Second || left > 890*time.Second {
		t.Errorf("%s remain of 900s less the reserve", left)
	}
	first.holds(before - time.Since(first.begun))
	s.delete(10)
	again := s.prestop()
	for _, p := range []*process{first, again} {
		p.returns()
		s.says(p, "reason=Expired")
	}
	// By the second delete it would be at least their sum.
	if first.took < budget || first.took >= before+budget {
		t.Errorf("returned after %s, want %s after the first start", first.took, budget)
	}
	if again.took > budget {
		t.Errorf("the hook that was run again held for %s, want what is left of %s", again.took, budget)
	}
	s.eventNaming("DrainExpired: The time was up after", "1 session cut")
	if all := s.events(); len(all) != 2 || len(s.helper.drains.list()) != 1 {
		t.Errorf("%d drains, Events %q; want one drain with two", len(s.helper.drains.list()), all)
	}
}

// An API that does not answer must not end a pod at once.
func TestUnreachableAPIHolds(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	c := s.connect(s.serve())
	s.api.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	c.end(t)
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
}

// A pod that no slice lists and that declares no port has nothing to settle.
func TestPodWithoutServiceIsReleasedAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 8080 },
		lifecycle.Policy{Settle: 30 * time.Second, SettleMax: time.Minute})
	must(t, s.api.DiscoveryV1().EndpointSlices(namespace).Delete(t.Context(), "web-abc", metav1.DeleteOptions{}))
	s.pod = s.pod.DeepCopy()
	s.pod.Spec.Containers[0].Ports = nil
	s.delete(60)
	begin := time.Now()
	if a := s.hook(); a.Reason != lifecycle.Drained || time.Since(begin) > 10*time.Second {
		t.Errorf("%s after %s", a.Reason, time.Since(begin))
	}
}

// Nobody but the node's pods is answered, and whoever sends too much is told so.
func TestStrangersAndOversizedRequests(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	stranger := &http.Client{Transport: &http.Transport{DialContext: s.lab.Client.Dial, DisableKeepAlives: true}}
	resp, err := stranger.Post("http://"+s.address(), "", strings.NewReader("{}"))
	must(t, err)
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || resp.Header.Get(lifecycle.Header) == "" {
		t.Errorf("a stranger got %s %v", resp.Status, resp.Header)
	}
	for body, want := range map[string]int{
		strings.Repeat(" ", lifecycle.MaxRequestBytes+1): http.StatusRequestEntityTooLarge,
		"{":            http.StatusBadRequest,
		"":             http.StatusOK,
		`{"later":[]}`: http.StatusOK,
	} {
		resp, err := s.http.Post("http://"+s.address(), "", strings.NewReader(body))
		must(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%d bytes: %s, want %d", len(body), resp.Status, want)
		}
	}
}

// Connections of one address beyond the limit are closed, and the rest is served.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	for range 2 * maxFromOne {
		c, err := s.lab.Client.Dial(t.Context(), "tcp", netip.AddrPortFrom(s.lab.GatewayAddr, lifecycle.APIPort).String())
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
	}
	if a := s.hook(); a.Reason != lifecycle.NotTerminating {
		t.Errorf("reason %s", a.Reason)
	}
}

// A person ends a drain at once, whatever holds it, and the Event names them. The
// hook that is run again joins that.
func TestReleasedByAUser(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	s.connect(s.serve())
	s.delete(900)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	d := s.helper.drains.list()[0]
	begin := time.Now()
	d.release("alice", "the node is on fire")
	d.release("bob", "")
	a := s.hook()
	if took := time.Since(begin); a.Reason != lifecycle.ReleasedByUser || took > 5*time.Second {
		t.Errorf("%s after %s, want %s at once", a.Reason, took, lifecycle.ReleasedByUser)
	}
	s.eventNaming("DrainReleased: Released by alice", "with 1 session left", "the node is on fire")
	if again := s.ask(lifecycle.DrainRequest{}); again.Reason != lifecycle.ReleasedByUser {
		t.Errorf("a second hook got %+v", again)
	}
}

// What a pod tells of its own sockets reaches the watch, also when it was told
// before there was one.
func TestSocketReportReachesTheWatch(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	s.serve()
	s.ask(lifecycle.DrainRequest{})
	s.delete(60)
	s.eventually("a drain that is confirmed", func() error {
		if a := s.ask(lifecycle.DrainRequest{}); a.RemainingSeconds == nil {
			return errors.New("phase is " + a.Phase)
		}
		return nil
	})
	d := s.helper.drains.list()[0]
	hidden := conntrack.Socket{
		Local: netip.AddrPortFrom(s.lab.PodAddr, s.lab.PodPort),
		Peer:  netip.MustParseAddrPort("192.0.2.1:40000"),
	}
	s.eventually("a socket that the kernel does not track counts", func() error {
		d.report(conntrack.SocketReport{At: time.Now(), Sockets: []conntrack.Socket{hidden}})
		if a := s.ask(lifecycle.DrainRequest{}); a.Source != "sockets" || a.Open == nil || *a.Open != 1 {
			return errors.New("source is " + a.Source)
		}
		return nil
	})
	d.report(conntrack.SocketReport{At: time.Now()})
	s.withdraw()
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
}
