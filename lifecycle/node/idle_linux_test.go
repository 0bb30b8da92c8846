package node

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// idles asks for requests of a pod whose sessions are idle soon.
var idles = annotated(map[string]string{
	"conndrain.io/until": "requests", "conndrain.io/idle-after": "1s", "conndrain.io/quiet": "60s",
})

// A session without a packet for idle-after can owe an answer all the same: whoever sees
// its socket ends the wait, and it is counted with those that hold.
func TestIdleSessionIsJudged(t *testing.T) {
	t.Parallel()
	idle := func(j *judge, c session) {
		j.Helper()
		j.eventually("it is idle, and to be judged", func() error {
			a := j.polls(time.Second)
			if a.Released() {
				t.Fatalf("released with it: %+v", a)
			}
			if q := a.WhenQuiet; q == nil || a.Idle == nil || *a.Idle != 1 || !q.Requests.Has(clientOf(c)) || !q.Ignored.Has(clientOf(c)) {
				return fmt.Errorf("%+v", a)
			}
			return nil
		})
	}
	t.Run("to the last word", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, idles, quick)
		c := s.connect(s.serve())
		j := s.judge(c)
		s.delete(900)
		s.withdraw()
		idle(j, c)
		j.leaves(1)
		s.eventNaming("Drained: 1 request cut on the 1 session left, ")
		s.metric(`conndrain_sessions_cut_total{activity="active"} 1`)
	})
	t.Run("to the deadline", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, idles, quick)
		c := s.connect(s.serve())
		j := s.judge(c)
		s.delete(10)
		s.withdraw()
		idle(j, c)
		if a := j.released(); a.Reason != lifecycle.Expired || a.Cut == nil || *a.Cut != 1 {
			t.Errorf("answer %+v", a)
		}
		s.eventNaming("DrainExpired: ", "1 session cut", clientOf(c).String())
	})
	t.Run("by nobody", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, idles, quick)
		j := s.judge(s.connect(s.serve()))
		j.can, j.says = nil, nil
		s.delete(900)
		s.withdraw()
		if a := j.released(); a.Reason != lifecycle.Drained || a.Idle == nil || *a.Idle != 1 {
			t.Errorf("answer %+v", a)
		}
		s.eventNaming("Drained: The last session has ended, 1 idle left out; ")
	})
}

// The hook waits for an answer that takes longer than idle-after, and then does not wait
// for the idle session.
func TestHookWaitsForAnAnswerLongerThanIdleAfter(t *testing.T) {
	t.Parallel()
	s := newScene(t, idles, quick)
	l := s.serve()
	c := s.connect(l)
	_, err := io.WriteString(c.client, "GET /slow HTTP/1.1\r\nHost: pod\r\n\r\n")
	must(t, err)
	asked, err := http.ReadRequest(bufio.NewReader(c.server))
	must(t, err)
	must(t, asked.Body.Close())
	s.delete(900)
	s.withdraw()
	p := s.prestop()
	s.eventNaming("Draining: ", "for a moment without a request on 1 session: ")
	s.eventually("it is idle for long", func() error {
		d := s.status().Drains[0]
		if d.Phase != lifecycle.Draining.String() {
			t.Fatalf("status %+v with a request in flight", d)
		}
		if d.Idle == nil || *d.Idle != 1 || d.ElapsedSeconds < 5 {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
	p.holds(0)
	_, err = io.WriteString(c.server, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi\n")
	must(t, err)
	p.returns()
	s.says(p, "reason=Drained helper=true")
	s.eventNaming("Drained: No request was in flight on the 1 session left; ")
}
