package main

import (
	"bufio"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// owing is a lab whose pod owes a client an answer, on a port that it has, and then
// listens no more if it is to stop.
func owing(t *testing.T, lab *netlab.Lab, port uint16, stop bool) {
	t.Helper()
	l, err := lab.Pod.Listen(t.Context(), "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := lab.Client.Dial(t.Context(), "tcp", netip.AddrPortFrom(lab.PodAddr, 8080).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = served.Close() })
	if _, err := fmt.Fprint(c, "GET /poll HTTP/1.1\r\nHost: pod\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadRequest(bufio.NewReader(served)); err != nil {
		t.Fatal(err)
	}
	if stop {
		_ = l.Close()
	}
}

// A server that ends in an orderly way closes its listener first. What it still owes
// holds, because connection tracking knows of it.
func TestWaitUntilRequestsAfterTheListener(t *testing.T) {
	for _, rule := range []string{"requests", "requests-strict"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			lab := newLab(t, netlab.LabOptions{})
			if err := lab.Pod.Track(); err != nil {
				t.Fatal(err)
			}
			owing(t, lab, 8080, true)
			p := start(t, lab.Pod, nil, "wait", "--until", rule, "--address", lab.PodAddr.String(), "--timeout", "5s", "--output", "json")
			p.exit(t, 3)
			if got := p.requests(t); got.Reason != "Expired" || got.Source != "conntrack" || !is(got.Open, 1) || !is(got.Cut, 1) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Behind a redirect the sockets have another port than the one that is asked for. With
// the right to read connection tracking that is known; without it, it is said.
func TestWaitUntilRequestsBehindARedirect(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	if err := lab.Pod.Redirect(8080, 15006); err != nil {
		t.Fatal(err)
	}
	owing(t, lab, 15006, false)
	p := start(t, lab.Pod, nil, "wait", "--until", "requests", "--address", lab.PodAddr.String(), "--port", "8080", "--timeout", "5s", "--output", "json")
	nobody := start(t, lab.Pod, asNobody, "wait", "--until", "requests", "--port", "8080", "--timeout", "5s")
	named := start(t, lab.Pod, asNobody, "wait", "--until", "requests", "--port", "15006", "--timeout", "5s")
	p.exit(t, 3)
	if got := p.requests(t); got.Reason != "Expired" || !is(got.Open, 1) || !is(got.Cut, 1) {
		t.Errorf("%+v", got)
	}
	nobody.exit(t, 2)
	if !nobody.stderr.has("nobody listens on --port 8080") || nobody.stdout.String() != "" {
		t.Error("it does not say that nobody listens there")
	}
	named.exit(t, 3)
	if !strings.HasPrefix(named.stdout.String(), "tcp ") && !strings.Contains(named.stdout.String(), "Expired") || !named.stderr.has("--port is taken for") {
		t.Error("it does not say which port it goes by")
	}
}

// A port that was mistyped is refused where the sockets alone decide, and said elsewhere:
// whoever waits for nothing stops the server at once.
func TestWaitUntilRequestsAtAPortOfNobody(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		tracked bool
		exit    int
		says    string
	}{
		{"nothing is tracked", false, 2, "nobody listens on --port 9999"},
		{"tracked", true, 0, "nobody listens on port 9999"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWeb(t, netlab.LabOptions{Untracked: true})
			if tc.tracked {
				if err := w.lab.Pod.Track(); err != nil {
					t.Fatal(err)
				}
			}
			p := start(t, w.lab.Pod, nil, "wait", "--until", "requests", "--port", "9999", "--timeout", "30s")
			p.exit(t, tc.exit)
			if !p.stderr.has(tc.says) {
				t.Errorf("it does not say %q: %s", tc.says, &p.stderr)
			}
			if !tc.tracked {
				nobody := start(t, w.lab.Pod, asNobody, "wait", "--until", "requests", "--port", "9999", "--timeout", "30s")
				nobody.exit(t, 2)
				onlyThePort(t, p)
				onlyThePort(t, nobody)
			}
			served := start(t, w.lab.Pod, nil, "wait", "--until", "requests", "--port", "8080", "--timeout", "30s")
			served.exit(t, 0)
			if served.stderr.has("nobody listens") {
				t.Errorf("it says so of a port that is served: %s", &served.stderr)
			}
		})
	}
}

// onlyThePort says that a program tells of the port, and of no right or rule that would
// help elsewhere: one that is named leads away from the mistake.
func onlyThePort(t *testing.T, p *process) {
	t.Helper()
	for _, astray := range []string{"hostNetwork", "nft ", "setcap", "CAP_NET_ADMIN", "not tracked"} {
		if p.stderr.has(astray) {
			t.Errorf("it speaks of %q: %s", astray, &p.stderr)
		}
	}
}
