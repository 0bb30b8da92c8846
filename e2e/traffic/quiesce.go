package traffic

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// QuiescePath is where a server is told that its pod drains, by POST.
const QuiescePath = "/-/quiesce"

// idleFor is how long a client may take to ask for something once more, and learn in the answer that its connection ends.
// Then connections without a request are closed, which a request on its way to them would not survive.
const idleFor = 2 * time.Second

// quiesced says that the server was told.
type quiesced struct {
	told  atomic.Bool
	mu    sync.Mutex
	timer *time.Timer
	sync.WaitGroup
}

func (q *quiesced) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.timer != nil {
		q.timer.Stop()
	}
}

// Quiesce ends the connections that clients keep, each when nothing is under way on it: HTTP/1.1 after its next answer,
// HTTP/2 by a GOAWAY with it, gRPC by one at once. HTTP takes new connections all the same. It does not block.
func (s *Server) Quiesce() {
	if s.quiesced.told.Swap(true) {
		return
	}
	s.quiesced.mu.Lock()
	defer s.quiesced.mu.Unlock()
	s.quiesced.timer = time.AfterFunc(idleFor, func() { s.web.SetKeepAlivesEnabled(false) })
	s.quiesced.Go(s.rpc.GracefulStop) // until the last call has ended, or Close
}

// closing is an answer that says that its connection ends, where the server was told.
type closing struct {
	http.ResponseWriter
	quiesced *quiesced
}

// Unwrap lets http.ResponseController flush.
func (c *closing) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *closing) Write(p []byte) (int, error) {
	if c.quiesced.told.Load() {
		c.Header().Set("Connection", "close") // without effect once the header was sent
	}
	return c.ResponseWriter.Write(p)
}
