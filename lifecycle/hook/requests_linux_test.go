package hook

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// rules runs a test under both rules.
func rules(t *testing.T, f func(s *scene)) {
	t.Parallel()
	for name, strict := range map[string]bool{"requests": false, "requests-strict": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			s.permits.strict = strict
			f(s)
		})
	}
}

// P6: keep-alive clients that never close do not hold the pod, and none of them is in
// the middle of a request when it ends.
func TestKeepAliveClientsDoNotHold(t *testing.T) {
	rules(t, func(s *scene) {
		s.serve(8080)
		for range 3 {
			s.keepAlive("/", 200*ms, 0)
		}
		s.wait().left(s.T)
	})
}

// A request that is answered after a while is waited for, among others that are not,
// and on a connection that has paused before.
func TestARequestInFlightHolds(t *testing.T) {
	rules(t, func(s *scene) {
		s.serve(8080)
		s.keepAlive("/", 200*ms, 0)
		slow := s.dial()
		slow.get("/")
		if err := slow.send("/slow?work=3000"); err != nil {
			s.Fatal(err)
		}
		var answered sync.WaitGroup
		answered.Go(func() {
			if err := slow.receive(); err != nil {
				s.Error(err)
			}
			_ = slow.conn.Close()
		})
		e := s.wait()
		answered.Wait()
		e.left(s.T)
		if end := s.endOf("/slow"); end.IsZero() || e.at.Before(end) {
			s.Errorf("left at %s, the slow request ended at %s", e.at, end)
		}
	})
}

// What holds to the deadline, whatever the others do: a long poll, half a request of
// two that came at once, a reader that does not read, and an answer to a client that
// has closed its half.
func TestWhatHolds(t *testing.T) {
	for name, begin := range map[string]func(c *caller) error{
		"a long poll": func(c *caller) error { return c.send("/poll?work=600000") },
		"the second of two requests that came at once": func(c *caller) error {
			_, err := io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: pod\r\n\r\nGET /slow?work=600000 HTTP/1.1\r\nHost: pod\r\n\r\n")
			return err
		},
		"a reader that does not read": func(c *caller) error { return c.send("/?size=33554432") },
		"an answer after half a close": func(c *caller) error {
			if err := c.send("/slow?work=600000"); err != nil {
				return err
			}
			return c.conn.CloseWrite()
		},
		"half a request": func(c *caller) error {
			_, err := io.WriteString(c.conn, "POST / HTTP/1.1\r\nHost: pod\r\nContent-Length: 1000\r\n\r\nhalf")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			rules(t, func(s *scene) {
				// No silence is long enough here; the wide rule has none to go by, because
				// this connection was never between two requests.
				s.permits.deadline = 4 * time.Second
				s.serve(8080)
				s.keepAlive("/", 200*ms, 0)
				if err := begin(s.dial()); err != nil {
					s.Fatal(err)
				}
				s.wait().held(s.T)
			})
		})
	}
}

// The first stream that a port ever sends, after many answers that did not pause: the
// strict rule holds for it.
func TestTheFirstStreamHoldsByTheStrictRule(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.permits.strict = true
	s.serve(8080)
	c := s.dial()
	learned := make(chan struct{})
	s.permits.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) {
		select {
		case <-learned:
		default:
			a.WhenQuiet = nil
		}
	}
	var done sync.WaitGroup
	done.Go(func() {
		for range 25 {
			c.get("/")
			rest(t.Context(), 60*ms)
		}
		if err := c.send("/stream?parts=5&pause=700"); err != nil {
			t.Error(err)
		}
		rest(t.Context(), 100*ms)
		close(learned)
		s.permits.now()
		if err := c.receive(); err != nil {
			t.Error(err)
		}
		for range 5 {
			rest(t.Context(), 200*ms)
			c.get("/")
		}
	})
	e := s.wait()
	e.left(t)
	if end := s.endOf("/stream"); end.IsZero() || e.at.Before(end) {
		t.Errorf("left at %s, the stream ended at %s", e.at, end)
	}
	done.Wait()
}

// Connections that last for less than the time between two looks neither hold for
// ever nor let anything go too early.
func TestConnectionsThatComeAndGo(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.serve(8080)
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() {
			for ctx.Err() == nil {
				c := s.dial()
				c.get("/?work=5")
				_ = c.conn.Close()
				rest(ctx, 30*ms)
			}
		})
	}
	slow := s.dial()
	if err := slow.send("/slow?work=1500"); err != nil {
		t.Fatal(err)
	}
	s.permits.quiet = 300 * ms
	e := s.wait()
	stop()
	clients.Wait()
	e.left(t)
	if end := s.endOf("/slow"); end.IsZero() || e.at.Before(end) {
		t.Errorf("left at %s, the slow request ended at %s", e.at, end)
	}
}

// P32: behind a redirect the client's connection is the proxy's; what the proxy keeps
// to the application holds nothing.
func TestP32BetweenRequestsBehindARedirect(t *testing.T) {
	rules(t, func(s *scene) {
		if err := s.Pod.Redirect(8080, 15006); err != nil {
			s.Fatal(err)
		}
		s.serve(15006)
		pool, err := s.Pod.Dial(s.Context(), "tcp", "127.0.0.1:15006")
		if err != nil {
			s.Fatal(err)
		}
		defer pool.Close()
		if _, err := io.WriteString(pool, "GET /poll?work=600000 HTTP/1.1\r\nHost: pod\r\n\r\n"); err != nil {
			s.Fatal(err)
		}
		s.keepAlive("/", 200*ms, 0)
		s.wait().left(s.T)
	})
}

// Ten thousand connections of which nobody can tell hold for as long as they have to
// be silent, and one that is at work as long as that. Looks then cost much and come
// seldom; the answer still lists all of them.
func TestTenThousandConnections(t *testing.T) {
	t.Parallel()
	const crowd, ports = 10_000, 3
	s := newScene(t)
	s.permits.quiet = time.Second
	s.permits.deadline = 5 * patience
	s.serve(8080)
	// Nobody accepts these: they wait in the listeners' queues, which takes no files.
	for port := range uint16(ports) {
		l, err := s.Pod.Listen(t.Context(), "tcp", fmt.Sprintf(":%d", 9000+port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	for i := range crowd {
		s.dialPort(9000 + uint16(i%ports))
	}
	slow := s.dial()
	if err := slow.send("/slow?work=4000"); err != nil {
		t.Fatal(err)
	}
	// Not all of them have room in a report; a helper knows them all the same.
	s.permits.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) {
		l, err := s.look(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		for _, k := range l.Live() {
			a.WhenQuiet.Requests.Add(k.Peer)
		}
	}
	e := s.wait()
	e.left(t)
	if end := s.endOf("/slow"); end.IsZero() || e.at.Before(end) {
		t.Errorf("left at %s, the slow request ended at %s", e.at, end)
	}
	// A slow machine does not see that many in the time of one look, at first.
	if !slices.ContainsFunc(s.permits.all(), func(r lifecycle.DrainRequest) bool {
		return r.Requests != nil && r.Requests.Counts["unknown"] == crowd && r.Requests.Counts["owes"] == 1
	}) {
		t.Error("the helper was never told of all of them")
	}
}

// One decision lets all hooks of a sidecar go.
func TestSidecarLeavesOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.serve(8080)
	s.keepAlive("/", 200*ms, 0)
	side := newSidecarAt(t, Config{look: s.look, transport: helper(s.permits.answer)})
	var hooks sync.WaitGroup
	for range 3 {
		hooks.Go(func() {
			if text, err := side.call(t.Context(), DrainPath); err != nil || text[:7] != "Drained" {
				t.Errorf("%q %v", text, err)
			}
		})
	}
	hooks.Wait()
	words := 0
	for _, r := range s.permits.all() {
		if r.Leaving != nil {
			words++
		}
		if len(r.Can) > 0 && r.Leaving == nil && (r.Can[0] != lifecycle.CanRequest || r.Can[1] != lifecycle.CanJudge) {
			t.Errorf("a sidecar can %q", r.Can)
		}
	}
	if words != 1 {
		t.Errorf("%d last words, want one", words)
	}
	side.term()
	side.ended()
}
