package hook

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle"
)

// scene is a client and a pod with an HTTP server of Go's own, on the real kernel.
type scene struct {
	*testing.T
	*netlab.Lab
	permits *permits

	mu sync.Mutex
	// flying are the requests in flight and when they began, served when the latest of
	// them ended, by their path.
	flying map[int]time.Time
	served map[string]time.Time
	number int
	// looked is when the last look began.
	looked time.Time
}

func newScene(t *testing.T) *scene {
	t.Helper()
	lab, err := netlab.NewLab(netlab.LabOptions{Untracked: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return &scene{T: t, Lab: lab, permits: newPermits(), flying: make(map[int]time.Time), served: make(map[string]time.Time)}
}

// serve serves HTTP on a port of the pod.
func (s *scene) serve(port uint16) {
	s.Helper()
	l, err := s.Pod.Listen(s.Context(), "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		s.Fatal(err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: patience}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with the test
	}()
	s.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

// ServeHTTP works for so many milliseconds and answers with so many bytes in so many
// parts, each after a pause.
func (s *scene) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && !peer.Addr().IsLoopback() {
		s.mu.Lock()
		s.number++
		n := s.number
		s.flying[n] = time.Now()
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.flying, n)
			s.served[r.URL.Path] = time.Now()
		}()
	}
	number := func(name string, otherwise int) int {
		if v, err := strconv.Atoi(r.URL.Query().Get(name)); err == nil {
			return v
		}
		return otherwise
	}
	// Not r's own context: whoever has closed his half still wants his answer.
	rest(s.Context(), time.Duration(number("work", 0))*ms)
	parts := number("parts", 1)
	body := make([]byte, number("size", 300))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)*parts))
	for i := range parts {
		if i > 0 {
			rest(s.Context(), time.Duration(number("pause", 0))*ms)
		}
		if _, err := w.Write(body); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
	}
}

func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// caller is one connection from the client's machine.
type caller struct {
	*scene
	conn *net.TCPConn
	in   *bufio.Reader
}

func (s *scene) dial() *caller {
	s.Helper()
	return s.dialPort(s.PodPort)
}

func (s *scene) dialPort(port uint16) *caller {
	s.Helper()
	c, err := s.Client.Dial(s.Context(), "tcp", netip.AddrPortFrom(s.PodAddr, port).String())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = c.Close() })
	return &caller{s, c.(*net.TCPConn), bufio.NewReader(c)}
}

func (c *caller) send(path string) error {
	_, err := io.WriteString(c.conn, "GET "+path+" HTTP/1.1\r\nHost: pod\r\n\r\n")
	return err
}

func (c *caller) receive() error {
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

func (c *caller) get(path string) {
	c.Helper()
	if err := c.send(path); err != nil {
		c.Fatal(err)
	}
	if err := c.receive(); err != nil {
		c.Fatal(err)
	}
}

// keepAlive sends requests with a pause after each answer, until the test ends or n
// have been answered. done is closed then.
func (s *scene) keepAlive(path string, pause time.Duration, n int) (done <-chan struct{}) {
	c := s.dial()
	ended := make(chan struct{})
	ctx, stop := context.WithCancel(s.Context())
	go func() {
		defer close(ended)
		for i := 0; (n == 0 || i < n) && ctx.Err() == nil; i++ {
			if c.send(path) != nil || c.receive() != nil {
				return // the test is over
			}
			rest(ctx, pause)
		}
	}()
	s.Cleanup(func() {
		stop()
		_ = c.conn.Close()
		<-ended
	})
	return ended
}

// look is a look from inside the pod.
func (s *scene) look(ctx context.Context) (l sockdiag.Look, err error) {
	err = s.Pod.Do(func() (err error) {
		l, err = sockdiag.TakeTraffic(ctx)
		return err
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = l.At
	return l, err
}

// ended is how a wait ended, and what was in flight then.
type ended struct {
	Result
	at   time.Time
	last *lifecycle.Leaving
	// flying are the requests that had begun before the last look and had not ended.
	flying int
}

// wait waits in the pod, for the deadline of the permits at the most.
func (s *scene) wait() ended {
	var e ended
	answer := func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
		if r.Leaving != nil {
			s.mu.Lock()
			for _, began := range s.flying {
				if began.Before(s.looked) {
					e.flying++
				}
			}
			s.mu.Unlock()
		}
		return s.permits.answer(ctx, r)
	}
	e.Result = Wait(s.Context(), Config{look: s.look, transport: helper(answer)})
	e.last, e.at = s.permits.last()
	return e
}

// left fails the test unless the hook has ended by itself, with nothing in flight.
func (e ended) left(t *testing.T) {
	t.Helper()
	if e.Reason != lifecycle.Drained || !e.Helper || e.last == nil || e.last.Cut != 0 || e.flying != 0 {
		t.Errorf("%+v with %d in flight, the last word is %+v", e.Result, e.flying, e.last)
	}
}

// held fails the test unless the hook has held until the deadline.
func (e ended) held(t *testing.T) {
	t.Helper()
	if e.Reason != lifecycle.Expired || e.last != nil {
		t.Errorf("%+v, the last word is %+v", e.Result, e.last)
	}
}

// endOf is when the latest request for the path had ended; zero is not yet.
func (s *scene) endOf(path string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[path]
}
