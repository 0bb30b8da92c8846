package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Served says what a Server has been asked for at /download and by gRPC.
type Served struct {
	Began time.Time `json:"began"` // when the latest transfer began; zero if there was none
	Ended time.Time `json:"ended"` // when the last one ended that ended so far
	Open  int       `json:"open"`  // how many have not ended
	// StreamBegan and StreamEnded are the same of transfers that take a time, which short requests beside them do not.
	StreamBegan time.Time `json:"streamBegan"`
	StreamEnded time.Time `json:"streamEnded"`
}

// served is a Served that requests fill.
type served struct {
	mu  sync.Mutex
	now Served
}

// begin notes that a transfer begins, a stream or not, and returns what notes its end.
func (s *served) begin(stream bool) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Began = time.Now()
	if stream {
		s.now.StreamBegan = s.now.Began
	}
	s.now.Open++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now.Ended = time.Now()
		if stream {
			s.now.StreamEnded = s.now.Ended
		}
		s.now.Open--
	}
}

// Served returns what there was up to now. It does not block.
func (s *Server) Served() Served {
	s.served.mu.Lock()
	defer s.served.mu.Unlock()
	return s.served.now
}

// Termination is a container's last word: Kubernetes keeps it in the status of the pod, where it is found when the
// container's log is gone.
type Termination struct {
	At     time.Time `json:"at"` // of SIGTERM
	Served Served    `json:"served"`
}

// terminationLog is where Kubernetes reads a container's message.
const terminationLog = "/dev/termination-log"

// Write leaves the message for Kubernetes. Outside of a container there is nobody to read it, and nothing is done.
func (t Termination) Write() error { return t.write(terminationLog) }

func (t Termination) write(name string) error {
	b, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode termination message: %w", err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write termination message: %w", err)
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write termination message: %w", err)
	}
	return nil
}
