package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conndrain/conndrain/e2e/cluster"
)

// What happens to nodes and to the control plane while a pod drains, one after the other on a cluster of its own, which
// has both families.
func TestFaults(t *testing.T) {
	t.Parallel()
	c := startFor(t, cluster.Options{
		Nodes:                           2,
		Families:                        cluster.DualStack,
		ShutdownGracePeriod:             2 * time.Minute,
		ShutdownGracePeriodCriticalPods: 20 * time.Second,
	})
	if err := install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, space)
	}{
		{"P12 sessions of IPv6 only", testP12},
		{"P22 the table is flushed", testP22Flush},
		{"P22 events are lost", testP22Overflow},
		{"P21 the kubelet is killed", testP21},
		{"P16 the API is gone", testP16},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, newSpace(t, c)) }) {
			break // the cluster may be anything now
		}
	}
}

// A dual-stack pod whose sessions are all of IPv6 is held by them.
func testP12(t *testing.T, s space) {
	d := newDrainCase(s, server{grace: 300, dual: true})
	address := ofIPv6(t, d.podAddresses())
	all := []conn{
		d.dial(d.c.Outside, addressOf(address, "tcp")),
		d.dial(d.node("n2").Namespace(), addressOf(ofIPv6(t, d.service.Spec.ClusterIPs), "tcp")),
	}
	d.tracked(address, len(all))
	d.delete()
	d.event(d.pod, "Draining", sessions(2), all[0].LocalAddr().String())
	all[0].Close()
	d.holds(6 * time.Second)
	all[1].open()
	all[1].Close()
	d.event(d.pod, "Drained", "The last session has ended")
	d.ends()
}

func (d *drained) podAddresses() []string {
	var all []string
	for _, ip := range d.pod.Status.PodIPs {
		all = append(all, ip.IP)
	}
	return all
}

func ofIPv6(t *testing.T, addresses []string) string {
	t.Helper()
	for _, a := range addresses {
		if netip.MustParseAddr(a).Is6() {
			return a
		}
	}
	t.Fatalf("none of %q is of IPv6", addresses)
	return ""
}

// A flush of the node's table ends no session, and so it ends no drain: neither before the client's next word nor after.
func testP22Flush(t *testing.T, s space) {
	d := newDrainCase(s, server{grace: 300})
	c := d.dial(d.node("n2").Namespace(), addressOf(d.service.Spec.ClusterIP, "tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	d.event(d.pod, "Draining", sessions(1), d.node("n2").Addresses[0]+":")
	if _, err := d.node("n1").Run(t.Context(), "conntrack", "--flush"); err != nil {
		t.Fatal(err)
	}
	d.holds(8 * time.Second)
	c.say("download bytes=10&duration=8s")
	if got := c.rest(); len(got) != 10 {
		t.Errorf("%d bytes came, want 10: the session was cut", len(got))
	}
	c.Close()
	d.event(d.pod, "Drained", "The last session has ended")
	d.ends()
}

// A helper that could not keep up with the kernel's events has lost some: it looks again, and lets nobody go for it.
func testP22Overflow(t *testing.T, s space) {
	d := newDrainCase(s, server{grace: 300})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	d.event(d.pod, "Draining", sessions(1), c.LocalAddr().String())
	d.signal("n1", "conndrain-node", "STOP")
	const datagrams = 20000 // more events than the helper's socket holds
	if err := flood(d.c.Outside, d.direct("udp"), datagrams); err != nil {
		t.Error(err)
	}
	d.signal("n1", "conndrain-node", "CONT")
	d.holds(10 * time.Second)
	c.open()
	c.Close()
	d.event(d.pod, "Drained", "The last session has ended")
	d.ends()
}

// flood sends datagrams, each from a port of its own.
func flood(from cluster.Namespace, address string, n int) error {
	return from.Do(func() error {
		for range n {
			c, err := net.Dial("udp", address)
			if err != nil {
				return fmt.Errorf("send datagram: %w", err)
			}
			_, err = c.Write([]byte("?"))
			c.Close()
			if err != nil {
				return fmt.Errorf("send datagram: %w", err)
			}
		}
		return nil
	})
}

// signal sends a signal to the processes of a name on a node.
func (s space) signal(node, comm, signal string) {
	s.Helper()
	script := fmt.Sprintf(`for p in /proc/[0-9]*; do
		if [ "$(cat $p/comm 2>/dev/null)" = %s ]; then kill -%s ${p#/proc/} && found=1; fi
	done; [ "$found" ]`, comm, signal)
	if out, err := s.node(node).Run(s.Context(), "sh", "-c", script); err != nil {
		s.Fatalf("send SIG%s to %s: %v\n%s", signal, comm, err, out)
	}
}

// A kubelet that is killed takes its running hook with it, and the next one runs the hook again from the start. The drain
// goes on as it was: held by its session, and not for longer than from the first hook's start.
func testP21(t *testing.T, s space) {
	const budget = 30 * time.Second
	d := newDrainCase(s, server{grace: 38})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	d.event(d.pod, "Draining", sessions(1), c.LocalAddr().String())
	d.holds(3 * time.Second)
	if err := d.node("n1").Kill(t.Context(), "kubelet"); err != nil {
		t.Fatal(err)
	}
	d.holds(10 * time.Second)
	c.open()
	text := d.event(d.pod, "DrainExpired", "1 session cut", c.LocalAddr().String())
	if after := secondsAfter(t, text); after < budget-time.Second || after > budget+time.Second {
		t.Errorf("expired %s after the first hook's start, want %s: %s", after, budget, text)
	}
	d.ends()
}

var afterSeconds = regexp.MustCompile(`after ([0-9.]+) s`)

// secondsAfter is how long a drain took, as its Event says.
func secondsAfter(t *testing.T, text string) time.Duration {
	t.Helper()
	m := afterSeconds.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%q does not say after how long", text)
	}
	seconds, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(seconds * float64(time.Second))
}

// The API server goes while the pod is still routed, and nobody changes its slices: the withdrawal is given up after its
// time, the session holds, and its end releases the pod. Nobody has to come back for that.
func testP16(t *testing.T, s space) {
	d := newDrainCase(s, server{grace: 60})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	// nobody withdraws the endpoint
	if err := d.c.Control.StopComponent(t.Context(), "kube-controller-manager"); err != nil {
		t.Fatal(err)
	}
	d.delete()
	d.eventually("the hook runs", func(ctx context.Context) error { return d.runs(ctx, "prestop") })
	if err := d.c.Control.StopComponent(t.Context(), "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	// withdrawn by the timeout of a third of the budget
	const held = 25 * time.Second
	for time.Since(d.begin) < held {
		if err := d.runs(t.Context(), "prestop"); err != nil {
			t.Fatalf("%s after the deletion: %v", time.Since(d.begin), err)
		}
	}
	c.open()
	c.Close()
	d.eventually("the hook returns", func(ctx context.Context) error {
		if err := d.runs(ctx, "prestop"); err == nil {
			return errors.New("it runs")
		}
		return nil
	})
	if took := time.Since(d.begin); took > 48*time.Second {
		t.Errorf("released %s after the deletion, at its deadline", took)
	}
	for _, component := range []string{"kube-apiserver", "kube-controller-manager"} {
		if err := d.c.Control.StartComponent(t.Context(), component); err != nil {
			t.Fatal(err)
		}
	}
	d.ends()
	for _, n := range d.c.Nodes {
		if err := n.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// runs is an error unless a process of the name runs on the node n1.
func (s space) runs(ctx context.Context, comm string) error {
	out, err := s.node("n1").Run(ctx, "sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null")
	if err != nil && out == "" {
		return err
	}
	for line := range strings.Lines(out) {
		if strings.TrimSpace(line) == comm {
			return nil
		}
	}
	return fmt.Errorf("no process %s runs", comm)
}
