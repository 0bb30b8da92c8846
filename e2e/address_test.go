package e2e

import (
	"context"
	"errors"
	"net/netip"
	"testing"
)

// A pod that has got the address of one that was killed in the middle of its sessions inherits none of them.
func testP24(t *testing.T, s space) {
	before := newDrainCase(s, server{name: "before", grace: 300})
	open := before.dial(s.c.Outside, before.direct("tcp"))
	before.tracked(before.pod.Status.PodIP, 1)
	s.kubectl("delete", "pod", before.pod.Name, "--grace-period=0", "--force", "--wait=true")
	address := netip.MustParseAddr(before.pod.Status.PodIP)
	s.eventually("the runtime has taken the address back", func(ctx context.Context) error {
		if _, err := s.node("n1").Run(ctx, "test", "-e", addressesInUse+address.String()); err == nil {
			return errors.New("it is in use")
		}
		return nil
	})
	// the plugin gives out the address after the last one
	if _, err := s.node("n1").Run(t.Context(), "sh", "-c",
		"printf %s "+address.Prev().String()+" >"+addressesInUse+"last_reserved_ip.0"); err != nil {
		t.Fatal(err)
	}
	d := newDrainCase(s, server{grace: 300})
	if d.pod.Status.PodIP != before.pod.Status.PodIP {
		t.Fatalf("the second pod has address %s, want %s of the first", d.pod.Status.PodIP, before.pod.Status.PodIP)
	}
	entries, err := s.entries(t.Context(), "n1", "tcp", d.pod.Status.PodIP, portOf("tcp"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("of the first pod's client %s there is left: %q", open.LocalAddr(), entries)
	d.delete()
	d.releasedAtOnce()
	if n := d.events(d.pod, "Draining"); n > 0 {
		t.Errorf("%d Events say Draining: the pod waits for sessions of another", n)
	}
	d.ends()
}

// addressesInUse is where the address plugin of a node has a file for each.
const addressesInUse = "/var/lib/cni/networks/pods/"
