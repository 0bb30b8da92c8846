package sockdiag

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// trafficIn is what the kernel counts of the one connection inside of n.
func trafficIn(t *testing.T, n *netlab.Namespace) Traffic {
	t.Helper()
	var l Look
	err := n.Do(func() (err error) {
		l, err = TakeTraffic(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Traffic) != len(l.Sockets) || len(l.Traffic) != 1 {
		t.Fatalf("%d sockets with %d of traffic, want one", len(l.Sockets), len(l.Traffic))
	}
	return l.Traffic[0]
}

// What one side sends is what the other receives, in the kernel's own figures.
func TestTrafficOfARequestAndItsAnswer(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	l := listen(t, lab.Pod, ":8080")
	c, s := connect(t, lab.Client, l, netip.AddrPortFrom(lab.PodAddr, 8080))
	if got := trafficIn(t, lab.Pod); !got.Known || got.Received != 0 || got.Sent != 0 || got.DataReceived != 0 {
		t.Errorf("a connection that has not spoken: %+v", got)
	}
	say := func(size int, from, to interface {
		Read([]byte) (int, error)
		Write([]byte) (int, error)
	}) {
		t.Helper()
		if _, err := from.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < size; {
			n, err := to.Read(make([]byte, size))
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
	}
	say(100, c, s)
	owing := trafficIn(t, lab.Pod)
	if owing.Received != 100 || owing.DataReceived != 1 || owing.DataSent != 0 {
		t.Errorf("after a request: %+v", owing)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 3 {
		<-tick.C
	}
	say(5000, s, c)
	var answered Traffic
	limit := time.After(patience)
	for answered = trafficIn(t, lab.Pod); answered.Unacknowledged > 0; answered = trafficIn(t, lab.Pod) {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never acknowledged: %+v", answered)
		}
	}
	if answered.Sent-answered.Retransmitted != 5000 || answered.Unsent != 0 || answered.DataSent == 0 ||
		answered.SinceReceived <= answered.SinceSent || answered.Segments < answered.DataSent ||
		answered.Acknowledged < 5000 || answered.RoundTrip <= 0 || answered.SegmentSize < 500 {
		t.Errorf("after its answer: %+v", answered)
	}
	if look := lookIn(t, lab.Pod); len(look.Traffic) != 0 {
		t.Error("a plain look reads traffic that nobody asked for")
	}
	if err := errors.Join(c.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}
