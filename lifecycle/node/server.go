package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conndrain/conndrain/lifecycle"
)

// Limits of what a caller may take, and may take its time for.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 5 * time.Second
	idleTimeout    = time.Minute
	maxHeader      = 8 << 10
	// writeMargin is how long an answer may take to be read.
	writeMargin = 5 * time.Second
	retryAfter  = "1"
	// smallRequest is what every connection may have read at once, in bytes; of larger
	// ones a pod has one.
	smallRequest = 8 << 10
	// justStarted is the elapsed time of a hook that tells nothing by it: it began a
	// moment ago, maybe not for the first time.
	justStarted = time.Second
)

// server answers hooks. A caller is the pod that its source address belongs to,
// and can influence nothing but the drain of that pod.
type server struct {
	pods interface {
		at(a netip.Addr) *corev1.Pod
		wasTerminating(uid types.UID) bool
	}
	drains *drains
	turns  turns
	// calls hears of each pod whose hook asks, delayed how long after a pod could go
	// its hook was told.
	calls   func(types.UID)
	delayed func(time.Duration)
	// notified hears how a pod's application was told of its drain.
	notified func(pod *corev1.Pod, what *lifecycle.Notify, n lifecycle.Notified)
	// own are the node's addresses, whose callers identity knows.
	own      func() ([]netip.Addr, error)
	identity *identity
	log      *slog.Logger
	// life ends with the helper: hooks that are held then get their drain's state,
	// and ask again.
	life context.Context
}

// newServer serves the API. Whoever serves it bounds the connections.
func (s *server) http() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+lifecycle.DrainPath, s.drain)
	return &http.Server{
		Handler:           s.known(mux),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout + requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

type callerKey struct{}

// known lets through only requests from the addresses of this node's pods, and
// those from the node's own that prove their pod by a token. It marks every answer
// as ours. The body of others is not read. Who is not known yet may be known in a
// moment, so no refusal is a final one.
func (s *server) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(lifecycle.Header, lifecycle.HeaderV1)
		pod, err := s.caller(r)
		if err != nil {
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", retryAfter)
			s.answer(w, http.StatusServiceUnavailable, lifecycle.DrainAnswer{Message: err.Error()})
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, pod)))
	})
}

// knows says whether an address is that of somebody who may be served.
func (s *server) knows(a netip.Addr) bool {
	if s.pods.at(a) != nil {
		return true
	}
	own, err := s.own()
	return err == nil && slices.Contains(own, a)
}

// caller is the pod that asks. Where an address says who it is no token is looked
// at, so none can make it another.
func (s *server) caller(r *http.Request) (*corev1.Pod, error) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil, fmt.Errorf("read caller's address: %w", err)
	}
	address := from.Addr().Unmap().WithZone("")
	if pod := s.pods.at(address); pod != nil {
		return pod, nil
	}
	own, err := s.own()
	if err != nil {
		return nil, err
	}
	if slices.Contains(own, address) {
		return s.identity.of(r.Context(), r.Header.Get("Authorization"))
	}
	return nil, fmt.Errorf("no pod of this node has the address %s, as far as is known now", address)
}

func (s *server) drain(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	pod := r.Context().Value(callerKey{}).(*corev1.Pod)
	request, err := s.read(w, r, pod)
	if err != nil {
		status := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			status = http.StatusRequestEntityTooLarge
		}
		s.answer(w, status, lifecycle.DrainAnswer{Message: "read request: " + err.Error()})
		return
	}
	if request.Leaving != nil {
		s.leave(w, pod, request)
		return
	}
	elapsed := lifecycle.Seconds(request.ElapsedSeconds)
	started := arrived.Add(-elapsed)
	inherited := elapsed < justStarted && s.pods.wasTerminating(pod.UID)
	d := s.drains.join(s.life, pod, started, inherited, lifecycle.Seconds(request.FallbackSleepSeconds))
	if d == nil {
		w.Header().Set("Retry-After", retryAfter)
		s.answer(w, http.StatusServiceUnavailable, lifecycle.DrainAnswer{Message: "this helper is ending"})
		return
	}
	s.calls(pod.UID)
	defer d.judges.hear(request, arrived)()
	look := d.hear(request, arrived)
	defer d.sockets.leave(look)
	hook := newCaller(request, arrived, look)
	d.met(&hook)
	s.tell(d, request)
	wait := min(lifecycle.Seconds(request.WaitSeconds), lifecycle.MaxWait)
	c := http.NewResponseController(w)
	// The request is read; now its answer may take its time.
	err = errors.Join(c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(arrived.Add(wait+writeMargin)))
	if err != nil {
		s.log.Debug("set deadlines", "err", err)
	}
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	defer context.AfterFunc(s.life, stop)()
	a := d.await(ctx, wait, &hook)
	switch {
	case a.Released() && elapsed > 0 && d.over(started):
		// What it is told by rests on a look from before it began: its next request
		// begins another drain.
		a = lifecycle.DrainAnswer{Phase: lifecycle.Serving.String(), Mark: a.Mark}
	case s.life.Err() != nil:
		a.WhenQuiet = nil // nobody is left to take it back
	}
	if !a.Released() {
		a.LookShare = s.drains.lookShare(d)
	}
	s.answer(w, http.StatusOK, a)
	if a.Released() {
		if delay, ok := d.free.answered(time.Now()); ok {
			s.delayed(delay)
		}
	}
}

// leave takes in the last word of a hook. It begins no drain: who has none is done.
func (s *server) leave(w http.ResponseWriter, pod *corev1.Pod, request lifecycle.DrainRequest) {
	s.calls(pod.UID)
	d := s.drains.of(pod.UID)
	if d == nil {
		s.answer(w, http.StatusOK, lifecycle.DrainAnswer{Message: "the pod has no drain here"})
		return
	}
	s.tell(d, request)
	d.leave(*request.Leaving)
	s.answer(w, http.StatusOK, d.answer(time.Now()))
}

// tell tells people how a hook has told the application.
func (s *server) tell(d *drain, request lifecycle.DrainRequest) {
	if request.Notified == nil {
		return
	}
	if pod, what, n, ok := d.result(*request.Notified); ok {
		s.notified(pod, what, n)
	}
}

// read blocks until the request is there, and decodes it. A large one waits for those of
// its pod before it, however slow they are; a small one waits for none.
func (s *server) read(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) (request lifecycle.DrainRequest, err error) {
	from := http.MaxBytesReader(w, r.Body, lifecycle.MaxRequestBytes)
	body, err := io.ReadAll(io.LimitReader(from, smallRequest))
	if err != nil || len(body) == 0 {
		return request, err
	}
	if len(body) == smallRequest {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		end, err := s.turns.take(ctx, pod.UID)
		if err != nil {
			return request, fmt.Errorf("the pod sends too much at once: %w", err)
		}
		defer end()
		rest, err := io.ReadAll(from)
		if err != nil {
			return request, err
		}
		body = append(body, rest...)
	}
	return request, s.turns.code(func() error { return json.Unmarshal(body, &request) })
}

func (s *server) answer(w http.ResponseWriter, status int, a lifecycle.DrainAnswer) {
	var text []byte
	encode := func() (err error) {
		text, err = json.Marshal(a)
		return err
	}
	var err error
	if a.WhenQuiet != nil { // it may name very many clients, to very many hooks at once
		err = s.turns.code(encode)
	} else {
		err = encode()
	}
	if err != nil {
		s.log.Error("encode answer", "err", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(text, '\n')); err != nil {
		s.log.Debug("write answer", "err", err) // the hook is gone; kubelet runs it again
	}
}
