package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/conndrain/conndrain/e2e/cluster"
	"github.com/conndrain/conndrain/e2e/product"
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
	if err := product.Install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, space)
	}{
		{"P12 sessions of IPv6 only", testP12},
		{"P24 an address is used again", testP24},
		{"P22 the table is flushed", testP22Flush},
		{"P22 events are lost", testP22Overflow},
		{"P21 the kubelet is killed", testP21},
		{"P21 the kubelet and the helper are killed", testP21WithHelper},
		{"P16 the API is gone", testP16},
		{"the port is taken", testPortTaken},
		{"the node shuts down", testNodeShutdown},
	} {
		if !t.Run(test.name, func(t *testing.T) { test.run(t, newSpace(t, c)) }) {
			break // the cluster may be anything now
		}
	}
}

// A kubelet that is killed takes its running hook with it, and the next one runs the hook again from the start. The drain
// goes on as it was: held by its session, and not for longer than from the first hook's start.
func testP21(t *testing.T, s space) {
	s.killed(30, 24*time.Second, func(d *drained) {
		if err := d.node("n1").Kill(t.Context(), "kubelet"); err != nil {
			t.Fatal(err)
		}
	})
}

// The same, and the helper is killed with the kubelet: nobody is left who knows when the first hook started.
func testP21WithHelper(t *testing.T, s space) {
	s.killed(50, 40*time.Second, func(d *drained) {
		d.signal("n1", "conndrain-node", "KILL")
		if err := d.node("n1").Kill(t.Context(), "kubelet"); err != nil {
			t.Fatal(err)
		}
	})
}

func (s space) killed(grace int64, budget time.Duration, kill func(*drained)) {
	s.Helper()
	d := newDrainCase(s, server{grace: grace})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	d.event(d.pod, "Draining", sessions(1), c.LocalAddr().String())
	d.holds(3 * time.Second)
	kill(d)
	d.holds(budget / 3)
	c.open()
	text := d.event(d.pod, "DrainExpired", "1 session cut", c.LocalAddr().String())
	if after := secondsAfter(s.T, text); after < budget-2*time.Second || after > budget+2*time.Second {
		s.Errorf("expired %s after the first hook's start, want %s: %s", after, budget, text)
	}
	d.ends()
	for _, n := range d.c.Nodes {
		if err := n.AwaitReady(d.Context()); err != nil {
			s.Fatal(err)
		}
	}
}

var afterSeconds = regexp.MustCompile(`(?:after|released) ([0-9.]+) s`)

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
	// at once: it would end the watches of others first, for half a minute
	if err := d.c.Control.Kill(t.Context(), "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if err := d.c.Control.StopComponent(t.Context(), "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if went := time.Since(d.begin); went > 15*time.Second {
		t.Fatalf("the API server went only %s after the deletion", went)
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
	// what it could not say while nobody was there
	d.event(d.pod, "Drained", "The last session has ended")
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
