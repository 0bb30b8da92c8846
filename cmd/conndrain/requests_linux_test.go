package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// web is an HTTP server of Go's own in the pod, and what it is doing.
type web struct {
	*testing.T
	lab *netlab.Lab

	mu     sync.Mutex
	served map[string]time.Time // when the latest request for a path had ended
}

func newWeb(t *testing.T, o netlab.LabOptions) *web {
	t.Helper()
	w := &web{T: t, lab: newLab(t, o), served: make(map[string]time.Time)}
	l, err := w.lab.Pod.Listen(t.Context(), "tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: w, ReadHeaderTimeout: patience}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with the test
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return w
}

// ServeHTTP works as long as the query says.
func (w *web) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if work, err := time.ParseDuration(r.URL.RawQuery); err == nil {
		pause(r.Context(), work)
	}
	_, _ = rw.Write(make([]byte, 300))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.served[r.URL.Path] = time.Now()
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// visit requests the paths one after the other from the client's machine, on one
// connection, the last one again and again, until the test ends.
func (w *web) visit(between time.Duration, paths ...string) {
	w.Helper()
	c, err := w.lab.Client.Dial(w.Context(), "tcp", netip.AddrPortFrom(w.lab.PodAddr, 8080).String())
	if err != nil {
		w.Fatal(err)
	}
	in := bufio.NewReader(c)
	ctx, stop := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			path := paths[min(i, len(paths)-1)]
			if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: pod\r\n\r\n", path); err != nil {
				return
			}
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			pause(ctx, between)
		}
	}()
	w.Cleanup(func() {
		stop()
		_ = c.Close()
		<-done
	})
}

// requestsOutcome is the object of a wait for requests.
type requestsOutcome struct {
	Reason, Source   string
	Open, Cut        *int
	Between, Idle    *int
	WaitedSeconds    float64
	Peak, New, Other *int
}

func (p *process) requests(t *testing.T) requestsOutcome {
	t.Helper()
	var o requestsOutcome
	if err := json.Unmarshal([]byte(p.stdout.String()), &o); err != nil {
		t.Fatalf("%v: %q", err, p.stdout.String())
	}
	return o
}

// A VM behind a load balancer: whoever waits has no right at all, and the clients
// never close.
func TestWaitUntilRequestsWithoutRights(t *testing.T) {
	for _, rule := range []string{"requests", "requests-strict"} {
		for name, o := range map[string]netlab.LabOptions{"untracked": {Untracked: true}, "tracked": {}} {
			t.Run(rule+", "+name, func(t *testing.T) {
				t.Parallel()
				w := newWeb(t, o)
				w.visit(200*time.Millisecond, "/")
				w.visit(200*time.Millisecond, "/", "/", "/slow?2s", "/")
				p := start(t, w.lab.Pod, asNobody, "wait", "--until", rule, "--output", "json", "--settle", "1s")
				p.exit(t, 0)
				got := p.requests(t)
				if got.Reason != "Drained" || got.Source != "sockets" || !is(got.Open, 2) || !is(got.Between, 2) || !is(got.Cut, 0) {
					t.Errorf("%+v", got)
				}
				if !p.stderr.has("source: sockets") || !p.stderr.has("between=") {
					t.Error("stderr does not say who decides, or what the connections do")
				}
			})
		}
	}
}

// With the right to it, connection tracking and the sockets decide together.
func TestWaitUntilRequestsWithConntrack(t *testing.T) {
	t.Parallel()
	w := newWeb(t, netlab.LabOptions{})
	if err := w.lab.Pod.Track(); err != nil {
		t.Fatal(err)
	}
	w.visit(200*time.Millisecond, "/")
	p := start(t, w.lab.Pod, nil, "wait", "--until", "requests", "--address", w.lab.PodAddr.String(), "--output", "json")
	p.exit(t, 0)
	if got := p.requests(t); got.Reason != "Drained" || got.Source != "conntrack" || !is(got.Open, 1) || !is(got.Between, 1) || !is(got.Cut, 0) {
		t.Errorf("%+v", got)
	}
}

// A request in flight is waited for; what is left of it at the deadline was cut.
func TestWaitUntilRequestsHolds(t *testing.T) {
	t.Parallel()
	w := newWeb(t, netlab.LabOptions{Untracked: true})
	w.visit(200*time.Millisecond, "/")
	w.visit(50*time.Millisecond, "/slow?3s", "/poll?1h")
	p := start(t, w.lab.Pod, asNobody, "wait", "--until", "requests", "--timeout", "5s", "--output", "json")
	waitFor(t, "the request is seen", func() bool { return p.stderr.has("owes=1") })
	p.exit(t, 3)
	if got := p.requests(t); got.Reason != "Expired" || !is(got.Open, 2) || got.Cut == nil || *got.Cut < 1 {
		t.Errorf("%+v", got)
	}

	text := start(t, w.lab.Pod, asNobody, "wait", "--until", "requests", "--timeout", "60s")
	waitFor(t, "the request is seen", func() bool { return text.stderr.has("owes=1") })
	text.signal(t, syscall.SIGINT)
	text.exit(t, 130)
	if !strings.Contains(text.stdout.String(), "1 to be answered") {
		t.Error("it does not say what is left")
	}
}

// Without anybody connected there is nothing to wait for.
func TestWaitUntilRequestsWithoutSessions(t *testing.T) {
	t.Parallel()
	w := newWeb(t, netlab.LabOptions{Untracked: true})
	p := start(t, w.lab.Pod, asNobody, "wait", "--until", "requests")
	p.exit(t, 0)
	if got := p.stdout.String(); !strings.HasPrefix(got, "Drained: this machine had no open session") {
		t.Errorf("stdout %q", got)
	}
}
