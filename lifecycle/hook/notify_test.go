package hook

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/lifecycle"
)

// application is one that can be told, and what it was asked.
type application struct {
	mu    sync.Mutex
	asked []string
}

func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, r.Method+" "+r.URL.RequestURI())
	switch r.URL.Path {
	case "/moved":
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	case "/broken":
		w.WriteHeader(http.StatusInternalServerError)
	case "/hangs":
		<-r.Context().Done()
	case "/quits":
		panic(http.ErrAbortHandler)
	}
}

func TestNotify(t *testing.T) {
	t.Parallel()
	order := func(method, scheme, path string) lifecycle.Notify {
		return lifecycle.Notify{Method: method, Scheme: scheme, Path: path}
	}
	for _, tc := range []struct {
		name    string
		order   lifecycle.Notify
		listen  string // nothing listens if it is empty
		own     []netip.Addr
		asked   []string
		failure string
	}{
		{"a request", order("POST", "http", "/-/quiesce?now=1"), "127.0.0.1:0", nil, []string{"POST /-/quiesce?now=1"}, ""},
		{"by GET", order("GET", "http", "/"), "127.0.0.1:0", nil, []string{"GET /"}, ""},
		{"with a certificate of nobody's", order("POST", "https", "/"), "127.0.0.1:0", nil, []string{"POST /"}, ""},
		{"on IPv6 alone", order("POST", "http", "/"), "[::1]:0", nil, []string{"POST /"}, ""},
		{"on the pod's address alone", order("POST", "http", "/"), "127.0.0.5:0", []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil, "nobody can be reached on port"},
		{"a redirect is an answer", order("POST", "http", "/moved"), "127.0.0.1:0", nil, []string{"POST /moved"}, ""},
		{"an error of the application's", order("POST", "http", "/broken"), "127.0.0.1:0", nil, []string{"POST /broken"}, "500 Internal Server Error"},
		{"an answer that does not come", order("POST", "http", "/hangs"), "127.0.0.1:0", nil, []string{"POST /hangs"}, `/hangs": no answer within 5 s`},
		{"an application that quits without an answer", order("POST", "http", "/quits"), "127.0.0.1:0", nil, []string{"POST /quits"}, "EOF"},
		{"nobody listens", order("POST", "http", "/"), "", nil, nil, "nobody can be reached on port"},
		{"with a space and a percent sign", order("GET", "http", "/a%20b c?d e=%2F"), "127.0.0.1:0", nil, []string{"GET /a%20b%20c?d%20e=%2F"}, ""},
		{"with another name for a host", order("GET", "http", "//127.0.0.9/x"), "127.0.0.1:0", nil, []string{"GET //127.0.0.9/x"}, ""},
		{"a path that becomes a host", order("GET", "http", "@127.0.0.1:1/"), "127.0.0.1:0", nil, nil, "does not begin with /"},
		{"a whole URL for a path", order("GET", "http", "http://127.0.0.1:1/"), "127.0.0.1:0", nil, nil, "does not begin with /"},
		{"without a path", order("GET", "http", ""), "127.0.0.1:0", nil, nil, "does not begin with /"},
		{"a line end in a path", order("GET", "http", "/ HTTP/1.1\r\nX: y"), "127.0.0.1:0", nil, nil, "invalid control character"},
		{"a line end in a query", order("GET", "http", "/?a\nX: y"), "127.0.0.1:0", nil, nil, "invalid control character"},
		{"by another method", order("DELETE", "http", "/"), "127.0.0.1:0", nil, nil, "older than its node's helper"},
		{"by another scheme", order("GET", "ftp", "/"), "127.0.0.1:0", nil, nil, "older than its node's helper"},
		{"of a later release", lifecycle.Notify{Method: "SEND", Scheme: "smtp"}, "", nil, nil, "older than its node's helper"},
		{"a signal of a later release", lifecycle.Notify{Signal: "SIGLATER"}, "", nil, nil, `"SIGLATER" is not known`},
		{"a signal to another container", lifecycle.Notify{Signal: "SIGUSR1"}, "", nil, nil, "needs the exec hook"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			app := &application{}
			tc.order.Port = 1 // nobody's
			if tc.listen != "" {
				l, err := net.Listen("tcp", tc.listen)
				if err != nil {
					t.Fatal(err)
				}
				server := httptest.NewUnstartedServer(app)
				_ = server.Listener.Close()
				server.Listener = l
				if tc.order.Scheme == "https" {
					server.StartTLS()
				} else {
					server.Start()
				}
				defer server.Close()
				tc.order.Port = uint16(l.Addr().(*net.TCPAddr).Port)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got := notifier{version: "v1", own: tc.own}.notify(ctx, tc.order)
			if !strings.Contains(got.Failure, tc.failure) || (got.Failure == "") != (tc.failure == "") {
				t.Errorf("failure %q, want %q", got.Failure, tc.failure)
			}
			if want := tc.order.Path == "/hangs" || tc.order.Path == "/quits"; got.Unanswered != want {
				t.Errorf("it was asked and has not answered: %t, want %t", got.Unanswered, want)
			}
			app.mu.Lock()
			defer app.mu.Unlock()
			if diff := cmp.Diff(tc.asked, app.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

// Who cannot be asked for a handshake that hangs was not told.
func TestNotifyIsNotSent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*ms)
	defer cancel()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	got := notifier{}.notify(ctx, lifecycle.Notify{Method: "POST", Scheme: "https", Port: port, Path: "/"})
	if !strings.Contains(got.Failure, "deadline exceeded") || got.Unanswered {
		t.Errorf("%+v", got)
	}
}

// An order has to name a port: none is that of the scheme.
func TestNotifyNeedsAPort(t *testing.T) {
	t.Parallel()
	got := notifier{}.notify(t.Context(), lifecycle.Notify{Method: "GET", Scheme: "http", Path: "/"})
	if !strings.Contains(got.Failure, "has no port") {
		t.Errorf("failure %q", got.Failure)
	}
}

// Whoever does not listen on loopback is found at the pod's own addresses.
func TestNotifyAddresses(t *testing.T) {
	t.Parallel()
	var got []string
	for _, a := range (notifier{own: []netip.Addr{
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.244.1.7"), netip.MustParseAddr("fe80::7"), netip.MustParseAddr("fd00::7"),
	}}).addresses() {
		got = append(got, a.String())
	}
	if diff := cmp.Diff([]string{"127.0.0.1", "::1", "10.244.1.7", "fd00::7"}, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

// Every signal that an annotation may name is known here.
func TestNotifySignals(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGWINCH"} {
		settings, malformed := lifecycle.ParseAnnotations(map[string]string{lifecycle.NotifyAnnotation: name}, nil)
		if len(malformed) > 0 {
			t.Fatal(malformed)
		}
		var sent []syscall.Signal
		n := notifier{signal: func(s syscall.Signal) error {
			sent = append(sent, s)
			return nil
		}}
		if got := n.notify(t.Context(), *settings.Notify); got.Failure != "" || len(sent) != 1 || sent[0] != signals[name] {
			t.Errorf("%s: %v %+v", name, sent, got)
		}
	}
	n := notifier{signal: func(syscall.Signal) error { return syscall.EPERM }}
	if got := n.notify(t.Context(), lifecycle.Notify{Signal: "SIGUSR1"}); !strings.Contains(got.Failure, "process 1") {
		t.Errorf("%+v", got)
	}
}

// It is carried out once, whatever is asked again, and told of until a helper has
// answered to that.
func TestNotifyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPermits()
		p.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) {
			a.WhenQuiet, a.Notify = nil, &lifecycle.Notify{Signal: "SIGUSR1"}
		}
		lost := false
		ctx, cancel := context.WithTimeout(t.Context(), 20*second)
		defer cancel()
		c := Config{look: beats(keepAlive), transport: helper(func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
			if r.Notified != nil && !lost {
				lost = true
				return nil, errRefused
			}
			return p.answer(ctx, r)
		})}
		c.Defaults()
		e := newEyes(c, false)
		var running sync.WaitGroup
		running.Go(func() { e.Run(ctx) })
		sent := 0
		wait(ctx, c, time.Now(), e, func(syscall.Signal) error {
			sent++
			return nil
		})
		running.Wait()
		told := 0
		for _, r := range p.all() {
			if r.Notified != nil {
				told++
				if r.ElapsedSeconds > 2 {
					t.Errorf("told only after %g s", r.ElapsedSeconds)
				}
			}
		}
		if sent != 1 || told != 1 || !lost {
			t.Errorf("sent %d times, told of %d times, lost %t", sent, told, lost)
		}
	})
}

// tellOnce is a wait in a fake pod whose signals take so long, and whose helper answers
// what its permits say.
func tellOnce(t *testing.T, c Config, takes time.Duration) Result {
	t.Helper()
	c.Defaults()
	ctx, cancel := context.WithCancel(t.Context())
	e := newEyes(c, false)
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	defer running.Wait()
	defer cancel()
	return wait(ctx, c, time.Now(), e, func(syscall.Signal) error {
		<-time.After(takes)
		return nil
	})
}

// How it went is part of the last word, where the hook ends before it could be told.
func TestNotifiedInTheLastWord(t *testing.T) {
	for name, tc := range map[string]struct {
		order   lifecycle.Notify
		failure string
	}{
		"done":     {lifecycle.Notify{Signal: "SIGUSR1"}, ""},
		"not done": {lifecycle.Notify{Signal: "SIGLATER"}, "not known"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPermits()
				p.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) { a.Notify = &tc.order }
				r := tellOnce(t, Config{look: beats(keepAlive), transport: helper(func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
					if r.Notified != nil && r.Leaving == nil {
						return hangs(ctx, r)
					}
					return p.answer(ctx, r)
				})}, 0)
				all := p.all()
				last := all[len(all)-1]
				if r.Reason != lifecycle.Drained || last.Leaving == nil || last.Notified == nil ||
					!strings.Contains(last.Notified.Failure, tc.failure) || (last.Notified.Failure == "") != (tc.failure == "") {
					t.Errorf("%+v; the last request is %+v, told %+v", r, last, last.Notified)
				}
			})
		})
	}
}

// An application that has not answered at the end is told of in the last word, too.
func TestNotNotifiedInTheLastWord(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&application{})
	defer server.Close()
	p := newPermits()
	port := uint16(server.Listener.Addr().(*net.TCPAddr).Port)
	p.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) {
		a.Notify = &lifecycle.Notify{Method: "POST", Scheme: "http", Port: port, Path: "/hangs"}
	}
	r := Wait(t.Context(), Config{look: beats(keepAlive), transport: helper(p.answer)})
	all := p.all()
	last := all[len(all)-1]
	if r.Reason != lifecycle.Drained || last.Leaving == nil || last.Notified == nil || !last.Notified.Unanswered || !strings.Contains(last.Notified.Failure, "before the application had answered") {
		t.Errorf("%+v; the last request is %+v, told %+v", r, last, last.Notified)
	}
}

// An application that takes long to answer keeps nobody waiting.
func TestNotifyDoesNotHold(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&application{})
	defer server.Close()
	p := newPermits()
	port := uint16(server.Listener.Addr().(*net.TCPAddr).Port)
	p.change = func(_ lifecycle.DrainRequest, a *lifecycle.DrainAnswer) {
		a.WhenQuiet = nil
		a.Notify = &lifecycle.Notify{Method: "POST", Scheme: "http", Port: port, Path: "/hangs"}
		if time.Since(p.start) > second {
			a.Phase, a.Reason = "released", lifecycle.Drained
		}
	}
	time.AfterFunc(1500*ms, p.now)
	r := Wait(t.Context(), Config{look: beats(keepAlive), transport: helper(p.answer)})
	if r.Reason != lifecycle.Drained || r.Waited > notifyTimeout {
		t.Errorf("%+v", r)
	}
}
