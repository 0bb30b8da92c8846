package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// shop is an application of HTTP/1 in the pod, and its clients, which keep their
// connections.
type shop struct {
	*scene
	url string
	// flying counts the requests that are being served, short and slow those that were.
	flying, short, slow atomic.Int32
	clients             sync.WaitGroup
	ctx                 context.Context // ends with the clients
}

// openShop serves with a listener what clients ask for at an address.
func (s *scene) openShop(l net.Listener, at netip.AddrPort, clients int) *shop {
	s.Helper()
	sh := &shop{scene: s, url: "http://" + at.String()}
	ctx, stop := context.WithCancel(context.Background())
	sh.ctx = ctx
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		sh.flying.Add(1)
		defer sh.flying.Add(-1)
		fmt.Fprintln(w, "hello, and here is something to read for everybody who asks")
		sh.short.Add(1)
	})
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		sh.flying.Add(1)
		defer sh.flying.Add(-1)
		select {
		case <-time.After(4 * time.Second):
		case <-r.Context().Done():
			return
		}
		fmt.Fprintln(w, "it took a while, but here is something to read as well")
		sh.slow.Add(1)
	})
	server := &http.Server{Handler: mux}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	for range clients {
		sh.clients.Go(func() { sh.client(300 * time.Millisecond) })
	}
	s.Cleanup(func() {
		stop()
		sh.clients.Wait()
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			s.Error(err)
		}
	})
	s.eventually("the clients are served", func() error {
		if n := sh.short.Load(); n < 10 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
	return sh
}

// service is the address of the pod's Service.
func (s *scene) service() netip.AddrPort {
	return netip.AddrPortFrom(s.lab.ServiceAddr, s.lab.ServicePort)
}

func (sh *shop) client(every time.Duration) {
	client := &http.Client{Transport: &http.Transport{DialContext: sh.lab.Client.Dial, MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := sh.get(client, "/"); err != nil && sh.ctx.Err() == nil {
			sh.Error(err)
		}
		select {
		case <-tick.C:
		case <-sh.ctx.Done():
			return
		}
	}
}

func (sh *shop) get(client *http.Client, path string) error {
	req, err := http.NewRequestWithContext(sh.ctx, http.MethodGet, sh.url+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// With keep-alive clients that go on and on, the hook returns between two requests of
// theirs, and not before the one that takes its time; under sessions it would be held to
// its deadline.
func TestHookReturnsBetweenRequests(t *testing.T) {
	t.Parallel()
	for _, until := range []string{"requests", "requests-strict"} {
		t.Run(until, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, annotated(map[string]string{"conndrain.io/until": until, "conndrain.io/busy-after": "0s"}), quick)
			sh := s.openShop(s.serve(), s.service(), 5)
			slow := make(chan error, 1)
			go func() {
				client := &http.Client{Transport: &http.Transport{DialContext: s.lab.Client.Dial, DisableKeepAlives: true}}
				slow <- sh.get(client, "/slow")
			}()
			s.eventually("the slow request is there", func() error {
				if sh.flying.Load() == 0 {
					return errors.New("it is not")
				}
				return nil
			})
			s.delete(120)
			s.withdraw()
			p := s.prestop()
			took := p.returns()
			if n := sh.slow.Load(); n != 1 {
				t.Errorf("%d slow requests were answered, want 1", n)
			}
			if err := <-slow; err != nil {
				t.Error(err)
			}
			t.Logf("returned after %s, with %d in flight a moment later", took, sh.flying.Load())
			s.says(p, "reason="+string(lifecycle.Drained)+" helper=true")
			s.eventNaming("Drained: No request was in flight on the ")
			s.metric(`conndrain_drain_duration_seconds_count{reason="Drained"} 1`)
			d := s.status().Drains[0]
			if open := d.Open; open == nil || d.Between == nil || *d.Between == 0 || *d.Between > *open {
				t.Errorf("its status is %+v, want the open sessions to be between requests", d)
			}
		})
	}
}

// The same where the node does not see the connections, where they are led to a proxy in
// the pod, and with a helper that is started anew in the middle; with the hooks of two
// containers.
func TestHooksReturnBetweenRequests(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		blind, redirected, restarted bool
	}{"blind": {blind: true}, "redirected": {redirected: true}, "restarted": {restarted: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, annotated(map[string]string{"conndrain.io/until": "requests"}), quick)
			at, port := s.service(), s.lab.PodPort
			if tc.blind {
				must(t, s.lab.Node.NoTrack(s.lab.PodAddr))
				at = netip.AddrPortFrom(s.lab.PodAddr, s.lab.PodPort)
			}
			if tc.redirected {
				port = 15006
				must(t, s.lab.Pod.Redirect(s.lab.PodPort, port))
			}
			s.openShop(s.listen(port), at, 5)
			s.delete(120)
			one, two := s.prestop(), s.prestop()
			s.says(one, "to=withdrawing")
			if tc.restarted {
				s.kill()
				s.revive()
			}
			s.withdraw()
			took := max(one.returns(), two.returns())
			t.Logf("returned after %s", took)
			if took > 40*time.Second {
				t.Errorf("returned after %s, with requests that take no time", took)
			}
			s.says(one, "reason=Drained helper=true")
			s.says(two, "reason=Drained helper=true")
			s.eventNaming("Drained: No request was in flight on the 5 sessions left; released")
		})
	}
}

// The application is told by the first hook that the helper finds, and ends its sessions
// itself.
func TestHookTellsTheApplication(t *testing.T) {
	t.Parallel()
	s := newScene(t, annotated(map[string]string{"conndrain.io/notify": "http://:9999/quiesce"}), quick)
	c := s.connect(s.serve())
	quiesced := make(chan string, 10)
	l := s.listen(9999)
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		quiesced <- r.Method + " " + r.URL.Path
		_ = c.client.Close()
		_ = c.server.Close()
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	s.delete(120)
	one, two := s.prestop(), s.prestop()
	s.says(one, "to=withdrawing")
	s.withdraw()
	one.returns()
	two.returns()
	s.eventNaming("Notified: The application was told that it will end, by POST http://:9999/quiesce")
	s.eventNaming("Drained: ")
	if n := len(quiesced); n != 1 {
		t.Errorf("told %d times, want once", n)
	}
	if got := <-quiesced; got != "POST /quiesce" {
		t.Errorf("told by %s", got)
	}
}
