package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

// P1 with the whole hook: a restart is over within three seconds, the pod serves the
// client that it has and new ones, and nothing of the hook is left.
func TestP1HookReturnsAndThePodServes(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	l := s.serve()
	c := s.connect(l)
	for range 2 {
		p := s.prestop()
		if took := p.returns(); took > 4*time.Second { // three, and the start of a process on this machine
			t.Errorf("returned after %s, want 3s", took)
		}
		s.says(p, "reason=NotTerminating helper=true")
	}
	s.eventually("nothing is left", func() error {
		if n := len(s.helper.drains.list()); n > 0 {
			return fmt.Errorf("%d drains are", n)
		}
		return nil
	})
	s.connect(l).end(t)
	c.end(t)
	if all := s.events(); len(all) > 0 {
		t.Errorf("Events %q of a pod that serves on", all)
	}
}

// P6 with the whole hook: the usual way of a pod, and how soon it ends.
func TestP6HookReturnsWithTheLastSession(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	c := s.connect(s.serve())
	s.delete(60)
	s.withdraw()
	p := s.prestop()
	s.says(p, "to=draining")
	p.holds(quick.Settle + time.Second)
	ended := time.Now()
	c.end(t)
	p.returns()
	late := time.Since(ended)
	t.Logf("returned %s after the last session's end", late)
	s.says(p, "reason=Drained helper=true")
	if late > 5*time.Second {
		t.Errorf("returned %s after the last session's end", late)
	}
}

// P14: where the data path bypasses conntrack, the sockets decide.
func TestP14BlindNode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		lab  netlab.LabOptions
	}{{"this pod is not tracked", netlab.LabOptions{}}, {"nothing is tracked", netlab.LabOptions{Untracked: true}}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newSceneIn(t, tc.lab, nil, quick)
			if !tc.lab.Untracked {
				must(t, s.lab.Node.NoTrack(s.lab.PodAddr))
			}
			l := s.serve()
			c := s.connectTo(l, netip.AddrPortFrom(s.lab.PodAddr, s.lab.PodPort))
			s.delete(60)
			s.withdraw()
			p := s.prestop()
			a := s.reaches(lifecycle.Draining, 1)
			if a.Source != "sockets" {
				t.Errorf("source %s, want sockets", a.Source)
			}
			s.metric("conndrain_node_blind 1")
			p.holds(2 * time.Second)
			ended := time.Now()
			c.end(t)
			p.returns()
			t.Logf("returned %s after the last session's end", time.Since(ended))
			s.says(p, "reason=Drained helper=true")
			s.eventNaming("Drained: The last session has ended")
		})
	}
}

// P14, P3: on such a node too, another use of the pod than its Service's does not
// hold it.
func TestP14ScrapeOnABlindNode(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{Name: "admin", ContainerPort: 9090})
	}, quick)
	must(t, s.lab.Node.NoTrack(s.lab.PodAddr))
	s.connectTo(s.listen(9090), netip.AddrPortFrom(s.lab.PodAddr, 9090))
	s.delete(60)
	s.withdraw()
	p := s.prestop()
	p.returns()
	s.says(p, "reason=Drained helper=true")
}

// P3: a scrape's connection to a port outside of the Service does not count.
func TestP3Scrape(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	s.connectTo(s.listen(9090), netip.AddrPortFrom(s.lab.PodAddr, 9090))
	s.delete(60)
	s.withdraw()
	p := s.prestop()
	p.returns()
	s.says(p, "reason=Drained helper=true")
}

// P3: a quiet keep-alive of a scrape, to a port that nobody declares, and a settle
// of the usual length.
func TestP3QuietScrapeOfAnUndeclaredPort(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, lifecycle.Policy{Settle: lifecycle.DefaultSettle, SettleMax: lifecycle.DefaultSettleMax})
	s.connectTo(s.listen(9090), netip.AddrPortFrom(s.lab.PodAddr, 9090))
	s.delete(60)
	s.withdraw()
	p := s.prestop()
	if took := p.returns(); took > 15*time.Second {
		t.Errorf("returned after %s", took)
	}
	s.says(p, "reason=Drained helper=true")
	s.metric("conndrain_node_blind 0")
}

// P4: a kubelet's call to the sidecar arrives as a connection to the pod, of which
// every port counts; it does not count.
func TestP4HookThatIsAConnection(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(p *corev1.Pod) { p.Spec.Containers[0].ReadinessProbe = nil }, quick)
	s.undeclare()
	l := s.listen(7000)
	c := s.connectTo(l, netip.AddrPortFrom(s.lab.PodAddr, 7000))
	p := s.prestop("sidecar")
	s.says(p, "serving hooks")
	s.delete(60)
	kubelet := http.Client{Transport: &http.Transport{DialContext: s.lab.Node.Dial, DisableKeepAlives: true}}
	returned := make(chan error, 3)
	for range cap(returned) {
		go func() {
			resp, err := kubelet.Get("http://" + netip.AddrPortFrom(s.lab.PodAddr, lifecycle.SidecarPort).String() + "/drain")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			returned <- err
		}()
	}
	s.reaches(lifecycle.Draining, 1)
	select {
	case err := <-returned:
		t.Fatalf("a hook returned with a session: %v", err)
	case <-time.After(time.Second):
	}
	c.end(t)
	for range cap(returned) {
		if err := <-returned; err != nil {
			t.Error(err)
		}
	}
	s.says(p, "reason=Drained helper=true")
	must(t, p.cmd.Process.Signal(os.Interrupt))
	p.returns()
}

// P30: an entry that is flushed under a live connection. Its socket decides: it
// holds the pod while it lives, and no longer.
func TestP30FlushedUnderALiveConnection(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	c := s.connect(s.serve())
	s.delete(60)
	s.withdraw()
	p := s.prestop()
	s.says(p, "to=draining")
	must(t, netlab.Flush(s.lab.Node))
	s.eventually("a lost session", func() error {
		if a := s.ask(lifecycle.DrainRequest{}); a.Lost == nil || *a.Lost != 1 {
			return errors.New("none is lost in " + a.Phase)
		}
		return nil
	})
	p.holds(3 * time.Second)
	// The client vanishes without a word, and the application gives it up.
	must(t, s.lab.Node.NoTrack(s.lab.ClientAddr))
	ended := time.Now()
	must(t, c.server.(*net.TCPConn).SetLinger(0))
	must(t, c.server.Close())
	p.returns()
	t.Logf("returned %s after the socket's end", time.Since(ended))
	s.says(p, "reason=Drained helper=true")
}

// P30: an entry that times out under a live connection, as that of a client that is
// silent for longer than the node's setting. Its socket decides too.
func TestP30TimedOutUnderALiveConnection(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	c := s.connectTo(s.serve(), netip.AddrPortFrom(s.lab.PodAddr, s.lab.PodPort))
	s.delete(60)
	s.withdraw()
	p := s.prestop()
	s.says(p, "to=draining")
	must(t, s.lab.Node.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_established", "2"))
	_, err := c.client.Write([]byte("x")) // the last word, from which the two seconds count
	must(t, err)
	_, err = io.ReadFull(c.server, make([]byte, 1))
	must(t, err)
	s.eventually("a lost session", func() error {
		if a := s.ask(lifecycle.DrainRequest{}); a.Lost == nil || *a.Lost != 1 {
			return errors.New("none is lost in " + a.Phase)
		}
		return nil
	})
	p.holds(5 * time.Second)
	ended := time.Now()
	c.end(t)
	p.returns()
	if late := time.Since(ended); late > 10*time.Second {
		t.Errorf("returned %s after the session's end", late)
	}
	s.says(p, "reason=Drained helper=true")
}

// mesh redirects the served port to a proxy that has a pool to the application on
// loopback. It returns a client's connection to the proxy.
func (s *scene) mesh() session {
	s.Helper()
	must(s.T, s.lab.Pod.Redirect(s.lab.PodPort, 15006))
	app := s.listen(s.lab.PodPort)
	pool, err := s.lab.Pod.Dial(s.Context(), "tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.lab.PodPort).String())
	must(s.T, err)
	pooled, err := app.Accept()
	must(s.T, err)
	s.Cleanup(func() { _, _ = pool.Close(), pooled.Close() })
	return s.connect(s.listen(15006))
}

// P32: behind a redirect to a proxy in the pod the client counts, and the pool on
// loopback does not.
func TestP32Mesh(t *testing.T) {
	t.Parallel()
	for _, helper := range []bool{true, false} {
		t.Run(fmt.Sprintf("helper %t", helper), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, nil, quick)
			c := s.mesh()
			s.delete(60)
			s.withdraw()
			if !helper {
				s.kill()
			}
			p := s.prestop("--fallback-sleep", "1s", "--grace", "60s")
			p.holds(4 * time.Second)
			ended := time.Now()
			c.end(t)
			p.returns()
			late := time.Since(ended)
			t.Logf("returned %s after the client's end", late)
			if late > 10*time.Second {
				t.Errorf("returned %s after the client's end", late)
			}
			s.says(p, fmt.Sprintf("reason=Drained helper=%t", helper))
		})
	}
}

// undeclare leaves the pod without a Service and without a declared port.
func (s *scene) undeclare() {
	s.Helper()
	must(s.T, s.api.DiscoveryV1().EndpointSlices(namespace).Delete(context.Background(), "web-abc", deleteNow))
	s.pod = s.pod.DeepCopy()
	s.pod.Spec.Containers[0].Ports = nil
}

// P24: an entry of the pod that had the address before is no session of this one,
// which has no socket of it.
func TestP24EntryOfThePodBefore(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	s.serve()
	must(t, netlab.Fill(s.lab.Node, func(yield func(netlab.Flow) bool) {
		yield(netlab.Flow{Protocol: 6, Orig: netlab.Tuple{
			Src: netip.AddrPortFrom(s.lab.ClientAddr, 40000), Dst: netip.AddrPortFrom(s.lab.PodAddr, s.lab.PodPort),
		}})
	}))
	s.delete(60)
	s.withdraw()
	p := s.prestop()
	if took := p.returns(); took > 20*time.Second {
		t.Errorf("took %s for a session of another pod", took)
	}
	s.says(p, "reason=Drained helper=true")
}
