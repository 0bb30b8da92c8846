package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// These tests are cases from the field, by their numbers: how long a pod stays for what may still come.

// P15: a Service that publishes addresses which are not ready never says ready=false of a pod, but it says terminating.
func TestP15PublishNotReadyAddressesIsWithdrawn(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 300, service: func(spec *corev1.ServiceSpec) { spec.PublishNotReadyAddresses = true }})
	d.delete()
	d.releasedAtOnce() // without a withdrawal it would be after the timeout of 30 s, and settle
	d.ends()
}

// P17: sessions go on beginning, as at the only endpoint of a Service or by clients that know the pod's address. They
// restart settle, but not for longer than settle-max.
func TestP17NewSessionsRestartSettle(t *testing.T) {
	t.Parallel()
	const settle, settleMax = 5 * time.Second, 60 * time.Second
	busy := func(d *drained, protocol string, count int) func() (traffic.Report, error) {
		return d.outside(traffic.Client{
			Protocol: protocol, Address: d.direct(protocol), Count: count, Pause: time.Second,
			Transfer: traffic.Transfer{Bytes: 1},
		})
	}
	t.Run("until they stop", func(t *testing.T) {
		t.Parallel()
		d := drainCase(t, server{grace: 300})
		const count = 12 // with a second between two of them
		begin := time.Now()
		wait := busy(d, "tcp", count)
		d.delete()
		got, err := wait()
		if err != nil {
			t.Fatal(err)
		}
		if got.Completed != got.Started {
			t.Errorf("client reports %+v, want all completed", got)
		}
		d.event(d.pod, "Drained")
		if took, want := time.Since(begin), (count-1)*time.Second+settle; took < want {
			t.Errorf("released %s after the first session, want %s: settle after the last", took, want)
		}
		d.ends()
	})
	t.Run("until settle-max", func(t *testing.T) {
		t.Parallel()
		d := drainCase(t, server{grace: 300, service: func(spec *corev1.ServiceSpec) { spec.PublishNotReadyAddresses = true }})
		wait := busy(d, "tcp", 64)
		d.delete()
		d.event(d.pod, "Drained")
		if took := time.Since(d.begin); took < settleMax || took > settleMax+atOnce {
			t.Errorf("released %s after the deletion, want settle-max of %s", took, settleMax)
		}
		d.ends()
		if got, err := wait(); err != nil || got.Completed < int(settleMax.Seconds())/3 {
			t.Errorf("client reports %+v, %v", got, err)
		}
	})
}

// P26: a readiness probe each second, and no client: the probes are not what settle is restarted by.
func TestP26ProbesDoNotHold(t *testing.T) {
	t.Parallel()
	d := &drained{space: productSpace(t)}
	d.pod, d.service = d.serve(server{name: "web", node: "n1", onTerm: "exit", hook: true, bare: true, grace: 300})
	d.delete()
	d.releasedAtOnce()
	d.ends()
}

// P19: the grace period that counts is the one of the deletion, not the one of the spec.
func TestP19GraceOfTheDeletionCounts(t *testing.T) {
	t.Parallel()
	const grace, budget = 10 * time.Second, 8 * time.Second
	d := drainCase(t, server{grace: 900})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.begin = time.Now()
	d.kubectl("delete", "pod", d.pod.Name, "--wait=false", fmt.Sprintf("--grace-period=%d", int(grace.Seconds())))
	text := d.event(d.pod, "DrainExpired", "1 session cut", c.LocalAddr().String())
	if after := secondsAfter(t, text); after < budget || after > grace {
		t.Errorf("expired %s after the hook's start, want %s of a grace of %s", after, budget, grace)
	}
	d.ends()
}
