package hook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// DrainPath and HealthPath are what a sidecar serves: a kubelet's httpGet hooks,
// and its probes.
const (
	DrainPath  = "/drain"
	HealthPath = "/healthz"
)

const (
	sidecarHeaderTimeout = 5 * time.Second
	sidecarMaxHeader     = 8 << 10
	// sidecarStop is how long answers may take to leave at the end.
	sidecarStop = 2 * time.Second
)

// Serve takes a kubelet's httpGet hooks on the listener, for all containers of the
// pod: each is held until the pod may end, as Wait says, and any number of them at
// once are one wait. Whoever may reach the pod can ask as well, so that the end of a
// wait that began before a hook came counts for it only where it would have been its own
// wait's end. The kubelet ignores the status of the answer.
//
// It blocks until ctx ends, which is SIGTERM. A native sidecar gets that only after
// the other containers have ended, and is then done at once; hooks that are still
// held are held on, until they are released or their caller gives up. It keeps
// nothing between two waits but what it has learned of the pod's connections: what a
// helper has decided it remembers itself, and a container that was restarted without a
// deletion may be deleted later.
func Serve(ctx context.Context, c Config, l net.Listener) error {
	c.Defaults()
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		c.Serves = append(c.Serves, a.AddrPort().Port())
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &sidecar{config: c, life: life, idle: make(chan struct{}, 1), eyes: newEyes(c, !c.NoLearning)}
	s.rounds.Go(func() { s.eyes.Run(life) })
	defer func() {
		stop()
		s.rounds.Wait()
	}()
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: sidecarHeaderTimeout,
		ReadTimeout:       sidecarHeaderTimeout,
		MaxHeaderBytes:    sidecarMaxHeader,
		ErrorLog:          slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	c.Logger.Info("serving hooks", "address", l.Addr().String(), "version", c.Version)
	select {
	case err := <-served:
		return fmt.Errorf("serve hooks: %w", err)
	case <-ctx.Done():
	}
	s.awaitIdle()
	last, cancel := context.WithTimeout(life, sidecarStop)
	defer cancel()
	err := server.Shutdown(last)
	if err != nil {
		err = server.Close()
	}
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}

// sidecar holds hooks. It is safe for concurrent use.
type sidecar struct {
	config Config
	// life ends with the sidecar.
	life   context.Context
	rounds sync.WaitGroup
	// eyes learn what a request is on the pod's connections, between two waits, too.
	eyes *looks.Eyes
	// idle receives when the last hook has left.
	idle chan struct{}

	mu     sync.Mutex
	places places
	now    *round // nil between two waits
}

func (s *sidecar) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+HealthPath, func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET "+DrainPath, s.drain)
	return mux
}

func (s *sidecar) drain(w http.ResponseWriter, r *http.Request) {
	if err := http.NewResponseController(w).SetReadDeadline(time.Time{}); err != nil {
		s.config.Logger.Debug("set deadline", "err", err)
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // always one
	round, place := s.join(from.Addr().Unmap())
	if place == nil {
		http.Error(w, "too many hooks at once", http.StatusServiceUnavailable)
		return
	}
	defer s.leave(place)
	for {
		select {
		case <-place.lost:
			http.Error(w, "too many hooks at once of this address", http.StatusServiceUnavailable)
			return
		case <-r.Context().Done():
			return // the wait goes on: a kubelet that was restarted asks again
		case <-round.ended:
		}
		if round.next == nil || round.counts(place.arrived) {
			fmt.Fprintf(w, "%s after %.1f s\n", round.result.Reason, round.result.Waited.Seconds())
			return
		}
		round = round.next
	}
}

// join returns the wait that goes on, and begins one where there is none. There is no
// place where too many take part in it.
func (s *sidecar) join(from netip.Addr) (*round, *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	place := s.places.take(from, now)
	if place != nil && s.now == nil {
		s.begin(newWaiter(s.config, now, s.eyes, nil))
	}
	return s.now, place
}

// begin begins a wait for those that have come since its start. The mutex is held.
func (s *sidecar) begin(w *waiter) {
	r := newRound(w)
	s.now = r
	s.rounds.Go(func() {
		result := w.run(s.life)
		s.mu.Lock()
		defer s.mu.Unlock()
		r.result, r.at = result, time.Now()
		r.due = w.told && !r.at.Before(w.deadline)
		s.now = nil
		if first, ok := s.places.first(func(arrived time.Time) bool { return !r.counts(arrived) }); ok {
			next := newWaiter(s.config, first, s.eyes, nil)
			if result.Reason != lifecycle.NotTerminating && w.told {
				next.deadline, next.told = w.deadline, true
			}
			s.begin(next)
			r.next = s.now
		}
		close(r.ended)
	})
}

func (s *sidecar) leave(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.places.leave(p); s.places.taken > 0 {
		return
	}
	select {
	case s.idle <- struct{}{}:
	default:
	}
}

// awaitIdle blocks until no hook is held.
func (s *sidecar) awaitIdle() {
	for {
		s.mu.Lock()
		held := s.places.taken
		s.mu.Unlock()
		if held == 0 {
			return
		}
		<-s.idle
	}
}
