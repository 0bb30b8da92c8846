package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

// These tests run the real hook as a process inside of the pod's network namespace.

// built is a folder with the program prestop; TestMain removes it.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "conndrain-prestop-")
	if err != nil {
		return "", err
	}
	builtDir = dir
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "prestop"), "github.com/conndrain/conndrain/cmd/prestop")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build prestop: %w\n%s", err, out)
	}
	return dir, nil
})

var builtDir string

// process is a prestop that runs in the pod.
type process struct {
	*testing.T
	cmd   *exec.Cmd
	begun time.Time
	ended chan struct{}
	err   error
	took  time.Duration

	mu     sync.Mutex
	stderr bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// prestop starts the program in the pod, as a container of Kubernetes with HOST_IP.
func (s *scene) prestop(args ...string) *process {
	s.Helper()
	dir, err := built()
	must(s.T, err)
	p := &process{T: s.T, begun: time.Now(), ended: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(dir, "prestop"), args...)
	p.cmd.Env = []string{"KUBERNETES_SERVICE_HOST=10.96.0.1", "HOST_IP=" + s.lab.GatewayAddr.String()}
	p.cmd.Stderr = p
	must(s.T, s.lab.Pod.Do(p.cmd.Start))
	go func() {
		p.err = p.cmd.Wait()
		p.took = time.Since(p.begun)
		close(p.ended)
	}()
	s.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		s.Logf("prestop said:\n%s", p.said())
	})
	return p
}

// returns waits for its end, which must be a good one.
func (p *process) returns() time.Duration {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Fatalf("prestop goes on after %s:\n%s", patience, p.said())
	}
	if p.err != nil {
		p.Errorf("prestop ended with %v", p.err)
	}
	return p.took
}

// holds fails the test if it ends within the time.
func (p *process) holds(d time.Duration) {
	p.Helper()
	select {
	case <-p.ended:
		p.Fatalf("returned after %s:\n%s", p.took, p.said())
	case <-time.After(d):
	}
}

// says waits until it has said all the words.
func (s *scene) says(p *process, words ...string) {
	s.Helper()
	s.eventually(fmt.Sprintf("prestop says %q", words), func() error {
		for _, w := range words {
			if !strings.Contains(p.said(), w) {
				return fmt.Errorf("it says\n%s", p.said())
			}
		}
		return nil
	})
}

// kill ends the helper at once, as far as hooks can see.
func (s *scene) kill() {
	s.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		s.Error(err)
	}
	s.done <- nil
}

// revive starts another helper, which knows nothing of the one before.
func (s *scene) revive() {
	s.Helper()
	config := s.helper.config
	config.Logger = slog.New(slog.NewTextHandler(s.Output(), nil))
	h, err := New(config, s.api, conntrack.NewReader(conntrack.Config{NetNS: s.lab.Node.FD()}), prometheus.NewRegistry())
	must(s.T, err)
	h.listen, h.own = s.helper.listen, s.helper.own
	s.helper = h
	s.start()
}

// connectTo is a client's connection to an address, untranslated.
func (s *scene) connectTo(l net.Listener, to netip.AddrPort) session {
	s.Helper()
	client, err := s.lab.Client.Dial(s.Context(), "tcp", to.String())
	must(s.T, err)
	server, err := l.Accept()
	must(s.T, err)
	s.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return session{client, server}
}

func (s *scene) listen(port uint16) net.Listener {
	s.Helper()
	l, err := s.lab.Pod.Listen(s.Context(), "tcp", fmt.Sprintf(":%d", port))
	must(s.T, err)
	s.Cleanup(func() { _ = l.Close() })
	return l
}

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
