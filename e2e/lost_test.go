package e2e

import (
	"net"
	"testing"
	"time"
)

// P30: the node forgets a connection that lives on, without a word in it. Its pod stays for it, until it is closed.
func TestP30ForgottenSessionHolds(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 300})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	d.event(d.pod, "Draining", sessions(1), c.LocalAddr().String())
	host, port, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.node("n1").Run(t.Context(), "conntrack", "--delete", "--proto", "tcp",
		"--orig-src", host, "--orig-port-src", port); err != nil {
		t.Fatal(err)
	}
	d.holds(8 * time.Second)
	c.open()
	c.Close()
	d.event(d.pod, "Drained", "The last session has ended")
	d.ends()
}
