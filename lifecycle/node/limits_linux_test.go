package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

func (s *scene) api10940() string {
	return netip.AddrPortFrom(s.lab.GatewayAddr, lifecycle.APIPort).String()
}

// closes waits until the other side has closed the connection, and returns what it
// said before that.
func closes(t *testing.T, c net.Conn) string {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(patience)))
	b, err := io.ReadAll(c)
	if ne := net.Error(nil); errors.As(err, &ne) && ne.Timeout() {
		t.Errorf("still open after %s", patience)
	}
	return string(b)
}

// A caller that takes its time, with its headers or its body, is let go, and others
// are served meanwhile.
func TestSlowCallers(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	for name, tc := range map[string]struct {
		from  *netlab.Namespace
		begin string
	}{
		"a pod's headers":     {s.lab.Pod, "POST /v1/drain HTTP/1.1\r\nHost: x\r\n"},
		"a pod's body":        {s.lab.Pod, "POST /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"},
		"a pod's chunks":      {s.lab.Pod, "POST /v1/drain HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"},
		"a stranger's":        {s.lab.Client, "POST /v1/drain HTTP/1.1\r\n"},
		"a stranger's body":   {s.lab.Client, "POST /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"},
		"nothing but silence": {s.lab.Pod, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := tc.from.Dial(t.Context(), "tcp", s.api10940())
			must(t, err)
			defer c.Close()
			begin := time.Now()
			_, err = io.WriteString(c, tc.begin)
			must(t, err)
			ctx, stop := context.WithCancel(t.Context())
			var drip sync.WaitGroup
			drip.Go(func() {
				tick := time.NewTicker(500 * time.Millisecond)
				defer tick.Stop()
				for tc.begin != "" {
					select {
					case <-tick.C:
						_, _ = io.WriteString(c, " ")
					case <-ctx.Done():
						return
					}
				}
			})
			said := closes(t, c)
			stop()
			drip.Wait()
			if took := time.Since(begin); took > headerTimeout+requestTimeout+20*time.Second {
				t.Errorf("held for %s", took)
			}
			if strings.HasPrefix(said, "HTTP/1.1 200") {
				t.Errorf("was served: %q", said)
			}
		})
	}
	t.Run("others meanwhile", func(t *testing.T) {
		t.Parallel()
		begin := time.Now()
		s.ask(lifecycle.DrainRequest{})
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("waited for %s", took)
		}
	})
}

// Whatever a pod of the node sends, it gets an answer that releases nothing, and
// the helper lives on.
func TestGarbage(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	for text, want := range map[string]string{
		"GET /v1/drain HTTP/1.1\r\nHost: x\r\n\r\n":                                                         "HTTP/1.1 405",
		"POST /v1/drains HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n":                                  "HTTP/1.1 404",
		"POST /v1/../metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n":                              "HTTP/1.1 ",
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n":                                           "HTTP/1.1 404",
		"BREW /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n":                                   "HTTP/1.1 405",
		"POST /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nnull":                               "HTTP/1.1 200",
		"POST /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n[]":                                 "HTTP/1.1 400",
		"POST /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 26\r\n\r\n{\"elapsedSeconds\":\"soon\"}\r\n": "HTTP/1.1 400",
		"POST /v1/drain HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n":                "HTTP/1.1 400",
		"POST /v1/drain HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n":              "HTTP/1.1 431",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n":                                              "HTTP/1.1 400",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                                  "HTTP/1.1 ",
	} {
		c, err := s.lab.Pod.Dial(t.Context(), "tcp", s.api10940())
		must(t, err)
		_, _ = io.WriteString(c, text) // the helper may have closed before all of it is read
		must(t, c.SetReadDeadline(time.Now().Add(patience)))
		line, err := bufio.NewReader(c).ReadString('\n')
		if !strings.HasPrefix(line, want) {
			t.Errorf("%.60q: %q, %v; want %q", text, line, err, want)
		}
		must(t, c.Close())
	}
	// None of that began anything but what a hook may begin.
	if a := s.hook(); a.Reason != lifecycle.NotTerminating {
		t.Errorf("reason %s", a.Reason)
	}
}

// A thousand requests at once are answered or closed, a pod is one drain all the
// same, and nothing of them is left.
func TestThousandAtOnce(t *testing.T) {
	s := newScene(t, nil, quick)
	c := s.connect(s.serve())
	s.delete(60)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	s.http.CloseIdleConnections()
	before := runtime.NumGoroutine()
	var answered, closed, wrong int
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range 1000 {
		from := s.lab.Pod
		if n%2 == 1 {
			from = s.lab.Client
		}
		all.Go(func() {
			client := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: from.Dial, DisableKeepAlives: true}}
			resp, err := client.Post("http://"+s.address(), "", strings.NewReader(`{"waitSeconds":1}`))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				closed++
				return
			case (resp.StatusCode == http.StatusOK) == (from == s.lab.Pod):
				answered++
			default:
				wrong++
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
	}
	all.Wait()
	if wrong > 0 || answered < maxFromOne {
		t.Errorf("%d answered, %d closed, %d wrong", answered, closed, wrong)
	}
	if n := len(s.helper.drains.list()); n != 1 {
		t.Errorf("%d drains", n)
	}
	s.eventually("nothing is left of them", func() error {
		if n := runtime.NumGoroutine(); n > before+5 {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
	c.end(t)
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
}

// A port that another program has is told, on the node and by the probe, and taken
// as soon as it is free; the rest is served meanwhile.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Policy = quick })
	taken, err := s.lab.Node.Listen(t.Context(), "tcp", s.api10940())
	must(t, err)
	defer taken.Close()
	s.run()
	s.eventually("the probe names the port", func() error {
		err := s.ready(nil)
		if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), s.api10940()) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	s.eventually("an Event on the node", func() error {
		list, err := s.api.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		must(t, err)
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == "n1" && e.Reason == "PortTaken" && strings.Contains(e.Message, s.api10940()) {
				return nil
			}
		}
		return fmt.Errorf("events are %v", list.Items)
	})
	must(t, taken.Close())
	s.eventually("ready", func() error { return s.ready(nil) })
	s.delete(60)
	s.withdraw()
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
}
