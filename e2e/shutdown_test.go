package e2e

import (
	"testing"
	"time"
)

// A pod that ends with its node is held as one that is deleted, although nothing of that shows on it: the power goes off when
// its last session has ended. The node stays off.
func testNodeShutdown(t *testing.T, s space) {
	n := s.node("n2")
	d := newDrainCase(s, server{node: n.Name, grace: 60})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.begin = time.Now()
	off := make(chan error, 1)
	go func() { off <- n.PowerOff(t.Context()) }()
	d.event(d.pod, "Draining", sessions(1), c.LocalAddr().String())
	d.holds(8 * time.Second)
	c.open()
	c.Close()
	d.event(d.pod, "Drained", "The last session has ended")
	if err := <-off; err != nil {
		t.Fatal(err)
	}
	t.Logf("off %s after the order", time.Since(d.begin))
}
