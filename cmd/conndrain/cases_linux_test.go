package main

import (
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// waitOn runs a whole wait of at most this long on the pod and returns how it
// ended.
func waitOn(t *testing.T, lab *netlab.Lab, timeout string, code int, args ...string) outcome {
	t.Helper()
	args = append([]string{"wait", "--address", lab.PodAddr.String(), "--timeout", timeout, "--output", "json"}, args...)
	p := start(t, lab.Node, nil, args...)
	p.exit(t, code)
	return p.outcome(t)
}

// TestP3MetricsConnectionIsNotCounted leaves only a scraper's keep-alive
// connection, to a port beside the served one.
func TestP3MetricsConnectionIsNotCounted(t *testing.T) {
	t.Parallel()
	const metrics = 9090
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, metrics)
	scraper := dial(t, lab.Client, lab.PodAddr, metrics)

	if got := waitOn(t, lab, "50s", 0, "--port", "8080"); got.Reason != "Drained" || !is(got.Peak, 0) {
		t.Error("with the served port: want Drained and no session ever")
	}
	if got := waitOn(t, lab, "5s", 3); got.Reason != "Expired" || !is(got.Cut, 1) {
		t.Error("with every port: want Expired and one cut")
	}
	talk(t, scraper)
}

// TestP8IdleSession has a keep-alive connection without a packet.
func TestP8IdleSession(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)

	got := waitOn(t, lab, "50s", 0, "--idle-after", "2s")
	if got.Reason != "Drained" || !is(got.Idle, 1) || !is(got.Open, 0) {
		t.Error("idle after 2 s: want Drained beside one idle session")
	}
	if got := waitOn(t, lab, "6s", 3); got.Reason != "Expired" || !is(got.Cut, 1) || !is(got.Idle, 0) {
		t.Error("without idle-after: want Expired and one cut")
	}
}

// TestP10OutboundPoolIsNotCounted has only connections that the pod made itself.
func TestP10OutboundPoolIsNotCounted(t *testing.T) {
	t.Parallel()
	const database = 5432
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Client, database)
	dial(t, lab.Pod, lab.ClientAddr, database)
	dial(t, lab.Pod, lab.ClientAddr, database)

	if got := waitOn(t, lab, "50s", 0); got.Reason != "Drained" || !is(got.Peak, 0) {
		t.Error("inbound: want Drained and no session ever")
	}
	if got := waitOn(t, lab, "5s", 3, "--direction", "outbound"); got.Reason != "Expired" || !is(got.Cut, 2) {
		t.Error("outbound: want Expired and two cut")
	}
	if got := waitOn(t, lab, "5s", 3, "--direction", "both", "--port", "5432"); got.Reason != "Expired" || !is(got.Cut, 2) {
		t.Error("both, the database's port: want Expired and two cut")
	}
}

// TestSocketsDecideWhereConntrackIsBypassed has a server in whose namespace
// nothing of it is tracked.
func TestSocketsDecideWhereConntrackIsBypassed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		prepare func(*netlab.Lab) error
	}{
		{"exempt by a rule", func(lab *netlab.Lab) error {
			if err := lab.Pod.Track(); err != nil {
				return err
			}
			return lab.Pod.NoTrack(lab.PodAddr)
		}},
		{"no rule tracks", func(*netlab.Lab) error { return nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lab := newLab(t, netlab.LabOptions{})
			if err := tc.prepare(lab); err != nil {
				t.Fatal(err)
			}
			serve(t, lab.Pod, lab.PodPort)
			c := dial(t, lab.Client, lab.PodAddr, lab.PodPort)

			p := start(t, lab.Pod, nil, "wait", "--address", lab.PodAddr.String(), "--timeout", "50s", "--output", "json")
			waitFor(t, "the session is seen", func() bool { return p.stderr.has("open=1") })
			if !p.stderr.has("bypass connection tracking") {
				t.Error("stderr does not say that connection tracking is bypassed")
			}
			talk(t, c)
			p.lives(t)
			closeNow(t, c)
			p.exit(t, 0)
			if got := p.outcome(t); got.Reason != "Drained" || got.Source != "sockets" || !is(got.Peak, 1) {
				t.Error("want Drained by sockets after one session")
			}
		})
	}
}

// TestSocketsDecideFromTheStart has a server in whose namespace no rule tracks.
func TestSocketsDecideFromTheStart(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	wait := func(code int, args ...string) *process {
		p := start(t, lab.Pod, nil, append([]string{"wait", "--address", lab.PodAddr.String(), "--output", "json"}, args...)...)
		p.exit(t, code)
		return p
	}

	// Nobody is there.
	p := wait(0, "--timeout", "50s")
	if got := p.outcome(t); got.Reason != "Drained" || got.Source != "sockets" || !is(got.Open, 0) || !is(got.Peak, 0) {
		t.Error("want Drained by sockets, without a session ever")
	}
	if n := strings.Count(p.stderr.String(), "bypass connection tracking"); n != 1 {
		t.Errorf("said %d times that connection tracking is bypassed, want once", n)
	}

	// No socket has an entry here, so that one look is enough.
	dial(t, lab.Client, lab.PodAddr, lab.PodPort)
	got := wait(3, "--timeout", "10s").outcome(t)
	if got.Reason != "Expired" || got.Source != "sockets" || !is(got.Open, 1) || !is(got.Cut, 1) || !is(got.New, 0) {
		t.Errorf("%+v, want Expired by sockets with one session cut", got)
	}

	// Sockets know nothing of UDP, so that a promise about it cannot be kept.
	p = wait(1, "--timeout", "50s", "--protocol", "tcp,udp")
	if !p.stderr.has("--protocol tcp") || !p.stderr.has("nft ") || p.stdout.String() != "" {
		t.Error("stderr does not say what to do about UDP")
	}
}

// TestWaitInTheServersNamespace has conntrack and sockets see the same.
func TestWaitInTheServersNamespace(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{})
	if err := lab.Pod.Track(); err != nil {
		t.Fatal(err)
	}
	serve(t, lab.Pod, lab.PodPort)
	c := dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)

	p := start(t, lab.Pod, nil, "wait", "--address", lab.PodAddr.String(), "--timeout", "50s", "--output", "json")
	waitFor(t, "the session is seen", func() bool { return p.stderr.has("open=1") })
	closeNow(t, c)
	p.exit(t, 0)
	if got := p.outcome(t); got.Reason != "Drained" || got.Source != "conntrack" || !is(got.Peak, 1) {
		t.Error("want Drained by conntrack after one session")
	}
	if p.stderr.has("bypass") {
		t.Error("stderr says that connection tracking is bypassed")
	}
}

// TestLostSessionEndsWithItsSocket takes the entry away from under a live
// connection, for good.
func TestLostSessionEndsWithItsSocket(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	if err := lab.Pod.Track(); err != nil {
		t.Fatal(err)
	}
	serve(t, lab.Pod, lab.PodPort)
	c := dial(t, lab.Client, lab.PodAddr, lab.PodPort)

	p := start(t, lab.Pod, nil, "wait", "--address", lab.PodAddr.String(), "--timeout", "50s", "--output", "json")
	waitFor(t, "the session is seen", func() bool { return p.stderr.has("open=1") })
	if err := lab.Pod.NoTrack(lab.PodAddr); err != nil {
		t.Fatal(err)
	}
	if err := netlab.Flush(lab.Pod); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the session is lost", func() bool { return p.stderr.has("lost=1") })
	talk(t, c)
	p.lives(t)
	closeNow(t, c)
	p.exit(t, 0)
	if got := p.outcome(t); got.Reason != "Drained" || !is(got.Lost, 0) || !is(got.Peak, 1) {
		t.Error("want Drained with nothing lost")
	}
}

// TestLostSessionBlocksToTheDeadline is the same where no socket can tell.
func TestLostSessionBlocksToTheDeadline(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	serve(t, lab.Pod, lab.PodPort)
	dial(t, lab.Client, lab.ServiceAddr, lab.ServicePort)

	p := start(t, lab.Node, nil, "wait", "--address", lab.PodAddr.String(), "--timeout", "10s")
	waitFor(t, "the session is seen", func() bool { return p.stderr.has("open=1") })
	if err := netlab.Flush(lab.Node); err != nil {
		t.Fatal(err)
	}
	p.exit(t, 3)
	if !p.stdout.has("lost (ESTABLISHED) from " + lab.ClientAddr.String()) {
		t.Error("the lost session is not named")
	}
}

// TestNoRight lacks CAP_NET_ADMIN, as root and as somebody else, at the node and
// in the server's own namespace.
func TestNoRight(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{})
	root := func(*exec.Cmd) error {
		// The thread that starts the process is thrown away with what it gave up.
		return unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0)
	}
	for _, tc := range []struct {
		name  string
		n     *netlab.Namespace
		adapt func(*exec.Cmd) error
	}{
		{"root, node", lab.Node, root},
		{"root, pod", lab.Pod, root},
		{"nobody, node", lab.Node, asNobody},
		{"nobody, pod", lab.Pod, asNobody},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, command := range []string{"wait", "sessions"} {
				p := start(t, tc.n, tc.adapt, command, "--address", lab.PodAddr.String(), "--output", "json")
				p.exit(t, 1)
				if !p.stderr.has("CAP_NET_ADMIN") || !p.stderr.has("setcap") {
					t.Errorf("%s does not say what is missing and what to do", command)
				}
				if p.stdout.String() != "" {
					t.Errorf("%s wrote data", command)
				}
			}
		})
	}
}

// TestNotTracking asks where nothing is tracked, for an address that is
// elsewhere.
func TestNotTracking(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{})
	for _, command := range []string{"wait", "sessions"} {
		p := start(t, lab.Client, nil, command, "--address", lab.PodAddr.String())
		p.exit(t, 1)
		if !p.stderr.has("not tracked in this network namespace") || p.stdout.String() != "" {
			t.Errorf("%s does not say that nothing is tracked", command)
		}
	}
}
