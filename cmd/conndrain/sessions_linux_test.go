package main

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// shownSession is what a test looks at of a session in JSON.
type shownSession struct {
	Protocol, Server, Destination, Direction, State, Kernel string
}

// listing is the object of sessions, change the one of sessions --watch.
type listing struct {
	Sessions         []shownSession
	Open, Idle, Lost int
}

type changeLine struct {
	Change           string
	Session          *shownSession
	Open, Idle, Lost *int
}

func TestSessionsJSON(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)

	p := start(t, lab.Node, nil, "sessions", "--address", lab.PodAddr.String(), "--output", "json")
	p.exit(t, 0)
	var got listing
	if err := json.Unmarshal([]byte(p.stdout.String()), &got); err != nil {
		t.Fatal(err)
	}
	want := listing{
		Sessions: []shownSession{{
			Protocol: "tcp", Server: "10.244.1.7:8080", Destination: "10.96.0.10:80",
			Direction: "inbound", State: "open", Kernel: "ESTABLISHED",
		}},
		Open: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("object (-want +got):\n%s", diff)
	}
}

func TestSessionsTable(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	c := dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)

	p := start(t, lab.Node, nil, "sessions", "--address", lab.PodAddr.String())
	p.exit(t, 0)
	lines := strings.Split(p.stdout.String(), "\n")
	if len(lines) != 3 || lines[2] != "" {
		t.Fatalf("stdout has %d lines, want a head and one session", len(lines)-1)
	}
	fields := strings.Fields(lines[1])
	want := []string{"tcp", c.LocalAddr().String(), "10.244.1.7:8080", "10.96.0.10:80", "open", "ESTABLISHED"}
	if diff := cmp.Diff(want, fields[:min(6, len(fields))]); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	if got, want := p.stderr.String(), "1 session of 10.244.1.7: 1 open, 0 idle, 0 lost.\n"; got != want {
		t.Errorf("stderr %q, want %q", got, want)
	}
}

func TestSessionsNone(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{})
	p := start(t, lab.Node, nil, "sessions", "--address", lab.PodAddr.String()+",10.9.9.9")
	p.exit(t, 0)
	if p.stdout.String() != "" || p.stderr.String() != "No session of 10.244.1.7, 10.9.9.9.\n" {
		t.Errorf("want a sentence on stderr and nothing on stdout")
	}
	p = start(t, lab.Node, nil, "sessions", "--address", lab.PodAddr.String(), "--output", "json")
	p.exit(t, 0)
	if got, want := p.stdout.String(), `{"sessions":[],"open":0,"idle":0,"lost":0}`+"\n"; got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
}

// TestSessionsThousands has as many sessions as a busy pod.
func TestSessionsThousands(t *testing.T) {
	const n = 4000
	lab := newLab(t, netlab.LabOptions{})
	if err := netlab.Fill(lab.Node, clients(lab.PodAddr, n)); err != nil {
		t.Fatal(err)
	}
	p := start(t, lab.Node, nil, "sessions", "--address", lab.PodAddr.String())
	p.exit(t, 0)
	if rows := strings.Count(p.stdout.String(), "\n") - 1; rows != n {
		t.Errorf("%d rows, want %d", rows, n)
	}
	if !p.stderr.has("4000 sessions of 10.244.1.7: 4000 open") {
		t.Error("the counts are wrong")
	}
}

// clients are that many established connections to port 8080 of a pod.
func clients(pod netip.Addr, n int) iter.Seq[netlab.Flow] {
	return func(yield func(netlab.Flow) bool) {
		for i := range n {
			client := netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
			orig := netlab.Tuple{Src: netip.AddrPortFrom(client, 40000), Dst: netip.AddrPortFrom(pod, 8080)}
			if !yield(netlab.Flow{Protocol: unix.IPPROTO_TCP, Orig: orig}) {
				return
			}
		}
	}
}

func TestSessionsWatchText(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	old := dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)

	p := start(t, lab.Node, nil, "sessions", "--address", lab.PodAddr.String(), "--watch")
	waitFor(t, "the session that was there", func() bool {
		return p.stdout.has(fmt.Sprintf("= tcp %s to 10.96.0.10:80 at 10.244.1.7:8080, open", old.LocalAddr()))
	})
	young := dial(t, lab.Client, lab.PodAddr, lab.PodPort)
	waitFor(t, "a new session", func() bool {
		return p.stdout.has(fmt.Sprintf("+ tcp %s to 10.244.1.7:8080 at 10.244.1.7:8080, open", young.LocalAddr()))
	})
	closeNow(t, old)
	waitFor(t, "the end of the old one", func() bool {
		return p.stdout.has(fmt.Sprintf("- tcp %s to 10.96.0.10:80", old.LocalAddr()))
	})
	closeNow(t, young)
	waitFor(t, "the end of the young one", func() bool {
		return p.stdout.has(fmt.Sprintf("- tcp %s to 10.244.1.7:8080", young.LocalAddr()))
	})
	p.signal(t, syscall.SIGINT)
	p.exit(t, 130)
}

func TestSessionsWatchJSON(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	c := dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)

	p := start(t, lab.Node, nil, "sessions", "--address", lab.PodAddr.String(), "--watch", "--output", "json")
	waitFor(t, "the session that was there", func() bool { return p.stdout.has(`"present"`) })
	closeNow(t, c)
	waitFor(t, "its end", func() bool { return p.stdout.has(`"ended"`) })
	p.signal(t, syscall.SIGTERM)
	p.exit(t, 130)

	type short struct {
		Change, State string
		Open          int
	}
	var got []short
	for line := range strings.Lines(p.stdout.String()) {
		var c changeLine
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		s := short{Change: c.Change, Open: *c.Open}
		if c.Session != nil {
			s.State = c.Session.State
		}
		if c.Change != changeChanged { // the FIN handshake has more or fewer looks in it
			got = append(got, s)
		}
	}
	want := []short{{"known", "", 1}, {"present", "open", 1}, {"ended", "over", 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// Inside the server's own network namespace it is seen what a connection is doing.
func TestSessionsShowWhatTheyAreDoing(t *testing.T) {
	t.Parallel()
	w := newWeb(t, netlab.LabOptions{})
	if err := w.lab.Pod.Track(); err != nil {
		t.Fatal(err)
	}
	w.visit(0, "/poll?1h")
	waitFor(t, "the request is in flight", func() bool {
		p := start(t, w.lab.Pod, nil, "sessions", "--address", w.lab.PodAddr.String(), "--output", "json")
		p.exit(t, 0)
		return p.stdout.has(`"request":"owes"`)
	})
	p := start(t, w.lab.Pod, nil, "sessions", "--address", w.lab.PodAddr.String())
	p.exit(t, 0)
	if !p.stdout.has("CLOSED FIRST   REQUEST\n") || !p.stdout.has("owes\n") {
		t.Errorf("stdout %q", p.stdout.String())
	}
	w.visit(200*time.Millisecond, "/")
	p = start(t, w.lab.Pod, nil, "sessions", "--address", w.lab.PodAddr.String(), "--watch", "--output", "json")
	waitFor(t, "the sessions are shown", func() bool { return p.stdout.has(`"change":"present"`) })
	p.signal(t, syscall.SIGTERM)
	p.exit(t, 130)

	elsewhere := start(t, w.lab.Node, nil, "sessions", "--address", w.lab.PodAddr.String())
	elsewhere.exit(t, 0)
	if elsewhere.stdout.has("REQUEST") {
		t.Errorf("stdout %q", elsewhere.stdout.String())
	}
}
