package hook

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// patience is how long something may take on a slow machine.
const patience = 60 * time.Second

// served is a sidecar on loopback, and what its helper is asked.
type served struct {
	*testing.T
	url  string
	term context.CancelFunc
	done chan error
}

func newSidecar(t *testing.T, h helper) *served {
	t.Helper()
	return newSidecarAt(t, Config{look: sees(pod), transport: h})
}

func newSidecarAt(t *testing.T, c Config) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, term := context.WithCancel(context.Background())
	s := &served{T: t, url: "http://" + l.Addr().String(), term: term, done: make(chan error, 1)}
	go func() { s.done <- Serve(ctx, c, l) }()
	t.Cleanup(term)
	return s
}

// ended waits for the sidecar's end.
func (s *served) ended() {
	s.Helper()
	select {
	case err := <-s.done:
		if err != nil {
			s.Error(err)
		}
	case <-time.After(patience):
		s.Fatal("the sidecar goes on")
	}
}

// call is one hook of a kubelet.
func (s *served) call(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s", resp.Status)
	}
	return string(b), err
}

// gate is a helper that holds everybody until it opens, and counts waits.
type gate struct {
	opened chan struct{}
	waits  atomic.Int32
	serves atomic.Int32
	reason lifecycle.Reason
}

func (g *gate) answer(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
	if r.WaitSeconds == 0 {
		g.waits.Add(1) // each begins so
		left := 100.0
		return always(http.StatusOK, lifecycle.DrainAnswer{Phase: "draining", RemainingSeconds: &left})(ctx, r)
	}
	if len(r.Serves) == 1 {
		g.serves.Store(int32(r.Serves[0]))
	}
	select {
	case <-g.opened:
		return always(http.StatusOK, lifecycle.DrainAnswer{Phase: "released", Reason: g.reason})(ctx, r)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// The hooks of all containers come at once and are one wait; SIGTERM afterwards
// ends the sidecar at once. It tells the helper the port that they come to.
func TestSidecarHoldsAllHooks(t *testing.T) {
	g := &gate{opened: make(chan struct{}), reason: lifecycle.Drained}
	s := newSidecar(t, g.answer)
	const hooks = 5
	answers := make(chan string, hooks)
	for range hooks {
		go func() {
			text, err := s.call(t.Context(), DrainPath)
			answers <- fmt.Sprint(text, err)
		}()
	}
	poll(t, func() bool { return g.waits.Load() == 1 && g.serves.Load() != 0 })
	if text, err := s.call(t.Context(), HealthPath); err != nil {
		t.Errorf("probe: %q %v", text, err)
	}
	select {
	case a := <-answers:
		t.Fatalf("a hook returned before its release: %s", a)
	default:
	}
	close(g.opened)
	for range hooks {
		if a := <-answers; a[:7] != "Drained" {
			t.Errorf("answer %q", a)
		}
	}
	if n := g.waits.Load(); n != 1 {
		t.Errorf("%d waits, want one for all hooks", n)
	}
	if _, port, _ := net.SplitHostPort(s.url[len("http://"):]); fmt.Sprint(g.serves.Load()) != port {
		t.Errorf("told the helper port %d, want %s", g.serves.Load(), port)
	}
	s.term()
	s.ended()
}

// P1: a container that is restarted returns, and the next hook begins anew.
func TestSidecarBeginsAnew(t *testing.T) {
	g := &gate{opened: make(chan struct{}), reason: lifecycle.NotTerminating}
	close(g.opened)
	s := newSidecar(t, g.answer)
	for i := range 3 {
		if text, err := s.call(t.Context(), DrainPath); err != nil {
			t.Errorf("%q %v", text, err)
		}
		if n := int(g.waits.Load()); n != i+1 {
			t.Errorf("%d waits after %d hooks", n, i+1)
		}
	}
	s.term()
	s.ended()
}

// A hook that is held is held on after SIGTERM; one whose caller has gone is not.
func TestSidecarAndSIGTERM(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(g *gate, hangUp context.CancelFunc)
	}{
		{"the hook is released", func(g *gate, _ context.CancelFunc) { close(g.opened) }},
		{"the kubelet is gone", func(_ *gate, hangUp context.CancelFunc) { hangUp() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := &gate{opened: make(chan struct{}), reason: lifecycle.Drained}
			s := newSidecar(t, g.answer)
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				_, _ = s.call(ctx, DrainPath)
			}()
			poll(t, func() bool { return g.waits.Load() == 1 })
			s.term()
			select {
			case <-returned:
				t.Error("the hook returned at SIGTERM")
			case err := <-s.done:
				t.Errorf("the sidecar ended at SIGTERM with a hook: %v", err)
			case <-time.After(300 * time.Millisecond):
			}
			tc.end(g, hangUp)
			<-returned
			s.ended()
		})
	}
}

// A kubelet that is restarted asks again and joins the wait that goes on.
func TestP21SidecarIsAskedAgain(t *testing.T) {
	g := &gate{opened: make(chan struct{}), reason: lifecycle.Drained}
	s := newSidecar(t, g.answer)
	ctx, killed := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := s.call(ctx, DrainPath)
		first <- err
	}()
	poll(t, func() bool { return g.waits.Load() == 1 })
	killed()
	if err := <-first; err == nil {
		t.Error("the first call was answered")
	}
	second := make(chan error, 1)
	go func() {
		_, err := s.call(t.Context(), DrainPath)
		second <- err
	}()
	select {
	case err := <-second:
		t.Errorf("the second call returned: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	close(g.opened)
	if err := <-second; err != nil {
		t.Error(err)
	}
	if n := g.waits.Load(); n != 1 {
		t.Errorf("%d waits, want the one from before", n)
	}
	s.term()
	s.ended()
}

// Whoever sends nothing is dropped.
func TestSidecarDropsSilentCallers(t *testing.T) {
	s := newSidecar(t, (&gate{}).answer)
	conn, err := net.Dial("tcp", s.url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /drain HT"); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil && err != io.EOF {
		t.Errorf("%q %v, want the connection closed", line, err)
	}
	s.term()
	s.ended()
}

func poll(t *testing.T, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("it does not come to that")
		}
	}
}
