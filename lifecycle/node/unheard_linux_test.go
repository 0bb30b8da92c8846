package node

import (
	"io"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// What the hook does while no helper hears it, with the real hook.

// P20: without a helper from the start the hook waits for fallback-sleep and for
// the pod's own sessions, but not beyond the deadline.
func TestP20NoHelper(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		args          []string
		session, ends bool
		least, most   time.Duration
		want          string
	}{
		{"no session", []string{"--fallback-sleep", "3s", "--grace", "60s"}, false, false, 3 * time.Second, 10 * time.Second, "Drained"},
		{"a session", []string{"--fallback-sleep", "1s", "--grace", "60s"}, true, true, 4 * time.Second, 15 * time.Second, "Drained"},
		{"a session that goes on", []string{"--fallback-sleep", "1s", "--grace", "5s"}, true, false, 4 * time.Second, 5 * time.Second, "Expired"},
		{"the upper bound wins", []string{"--fallback-sleep", "15s", "--grace", "5s"}, false, false, 4 * time.Second, 5 * time.Second, "Drained"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, nil, quick)
			s.kill()
			l := s.serve()
			var c session
			if tc.session {
				c = s.connect(l)
			}
			p := s.prestop(tc.args...)
			s.says(p, "no helper answers")
			if tc.ends {
				p.holds(4 * time.Second)
				c.end(t)
			}
			if took := p.returns(); took < tc.least || took > tc.most {
				t.Errorf("took %s, want %s to %s", took, tc.least, tc.most)
			}
			s.says(p, "reason="+tc.want+" helper=false")
		})
	}
}

// P20: a helper that is killed in the middle leaves its deadline behind; one that
// comes back goes on with the drain.
func TestP20HelperKilledAndBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	c := s.connect(s.serve())
	s.delete(60)
	s.withdraw()
	p := s.prestop("--fallback-sleep", "1s")
	s.says(p, "to=draining")
	s.kill()
	s.says(p, "no helper answers", "sockets decide")
	p.holds(3 * time.Second)
	s.revive()
	s.says(p, "the helper answers again")
	a := s.reaches(lifecycle.Draining, 1)
	if left, ok := a.Remaining(); !ok || left > 50*time.Second-time.Since(p.begun)+time.Second {
		t.Errorf("%s remain %s after the first start of 50s", left, time.Since(p.begun))
	}
	c.end(t)
	p.returns()
	s.says(p, "reason=Drained helper=true")
}

// P20: its last word on the deadline stands when it is gone.
func TestP20DeadlineOfAHelperThatIsGone(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	s.connect(s.serve())
	s.delete(10)
	s.withdraw()
	p := s.prestop("--grace", "900s")
	s.says(p, "to=draining")
	s.kill()
	if took := p.returns(); took < 7*time.Second || took > 10*time.Second {
		t.Errorf("took %s, want 8s of a grace of 10s", took)
	}
	s.says(p, "reason=Expired helper=false")
}

// P29: something that is not the helper answers on its port, or nobody lets packets
// through to it.
func TestP29SomethingInBetween(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"502": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "upstream", http.StatusBadGateway) },
		"403": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "RBAC", http.StatusForbidden) },
		"garbage": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(lifecycle.Header, lifecycle.HeaderV1)
			_, _ = io.WriteString(w, "<html>")
		},
		"silence": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then is it noticed that the hook has gone
			<-r.Context().Done()
		},
		"dropped": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, nil, quick)
			s.kill()
			if handler != nil {
				l, err := s.lab.Node.Listen(t.Context(), "tcp", netip.AddrPortFrom(s.lab.GatewayAddr, lifecycle.APIPort).String())
				must(t, err)
				server := &http.Server{Handler: handler}
				go func() { _ = server.Serve(l) }()
				t.Cleanup(func() { _ = server.Close() })
			} else {
				must(t, s.lab.Node.Drop(lifecycle.APIPort))
			}
			c := s.connect(s.serve())
			p := s.prestop("--fallback-sleep", "1s", "--grace", "60s")
			s.says(p, "no helper answers")
			noticed := time.Since(p.begun)
			t.Logf("noticed after %s", noticed)
			// Two seconds, which package hook tests by its own clock; the rest is this machine's.
			if noticed > 5*time.Second {
				t.Errorf("noticed after %s, want 2s", noticed)
			}
			p.holds(4 * time.Second)
			c.end(t)
			p.returns()
			s.says(p, "reason=Drained helper=false")
		})
	}
}

// P29: what answers in the helper's place goes away, and the helper is there: it was
// tried on, and the drain is its own from then on.
func TestP29HelperIsTriedOn(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusBadGateway, http.StatusForbidden} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, nil, quick)
			s.kill()
			l, err := s.lab.Node.Listen(t.Context(), "tcp", netip.AddrPortFrom(s.lab.GatewayAddr, lifecycle.APIPort).String())
			must(t, err)
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "mesh", status) })}
			served := make(chan struct{})
			go func() { defer close(served); _ = server.Serve(l) }()
			t.Cleanup(func() { _ = server.Close(); <-served })
			c := s.connect(s.serve())
			s.delete(60)
			s.withdraw()
			p := s.prestop("--fallback-sleep", "1s", "--grace", "60s")
			s.says(p, "no helper answers", "sockets decide")
			p.holds(2 * time.Second)
			must(t, server.Close())
			s.revive()
			s.says(p, "the helper answers again")
			s.reaches(lifecycle.Draining, 1)
			p.holds(2 * time.Second)
			c.end(t)
			p.returns()
			s.says(p, "reason=Drained helper=true")
			s.eventNaming("Drained: The last session has ended")
		})
	}
}

// A container whose hook has told of sockets and is killed does not hold the other
// containers of its pod for ever, nor do hooks that tell of none.
func TestKilledReporterDoesNotHold(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	c := s.connect(s.serve())
	s.delete(60)
	s.withdraw()
	p := s.prestop()
	s.says(p, "to=draining")
	must(t, p.cmd.Process.Kill())
	<-p.ended
	released := make(chan lifecycle.DrainAnswer, 1)
	go func() { released <- s.hook() }() // of an old release
	select {
	case a := <-released:
		t.Fatalf("released with a session: %+v", a)
	case <-time.After(time.Second):
	}
	ended := time.Now()
	c.end(t)
	if a := <-released; a.Reason != lifecycle.Drained || time.Since(ended) > reporterPatience+5*time.Second {
		t.Errorf("%s %s after the last session's end", a.Reason, time.Since(ended))
	}
}
