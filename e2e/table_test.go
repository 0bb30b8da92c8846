package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/conndrain/conndrain/e2e/cluster"
)

// These cases of TestFaults are about what is in a node's table, and what is not.

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

// P12 where there is nothing but IPv6: the hook finds its helper, and sessions count.
func testP12Only(t *testing.T, s space) {
	d := newDrainCase(s, server{grace: 300})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	d.event(d.pod, "Draining", sessions(1), c.LocalAddr().String())
	c.Close()
	d.event(d.pod, "Drained", "The last session has ended")
	if took := d.ends(); took > limit {
		t.Errorf("pod went %s after its deletion", took)
	}
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
	lost := d.metric("n1", "conndrain_events_lost_total")
	d.signal("n1", "conndrain-node", "STOP")
	const datagrams = 20000 // more events than the helper's socket holds
	if err := flood(d.c.Outside, d.direct("udp"), datagrams); err != nil {
		t.Error(err)
	}
	d.signal("n1", "conndrain-node", "CONT")
	d.eventually("events are lost", func(context.Context) error {
		if n := d.metric("n1", "conndrain_events_lost_total"); n <= lost {
			return fmt.Errorf("conndrain_events_lost_total is %v, as before", n)
		}
		return nil
	})
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
