package e2e

import (
	"context"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// These tests are cases from the field, by their numbers: which sessions hold a pod.

// atOnce is within settle and a second, on a machine that is five times slower than ours.
const atOnce = 5 * (5 + 1) * time.Second

// releasedAtOnce blocks until the pod is let go, with the words in the Event, and makes sure that nothing has held it.
func (d *drained) releasedAtOnce(words ...string) {
	d.Helper()
	text := d.event(d.pod, "Drained", words...)
	if after := secondsAfter(d.T, text); after > atOnce {
		d.Errorf("released %s after the hook's start: something has held the pod: %s", after, text)
	}
}

// P5: a raw TCP connection on which nobody has said a word holds its pod.
func TestP5SilentTCPHolds(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 300})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	d.event(d.pod, "Draining", sessions(1), c.LocalAddr().String(), "port 7000/tcp", "older than the drain")
	d.holds(6 * time.Second)
	c.open()
	c.Close()
	d.event(d.pod, "Drained", "The last session has ended")
	if took := d.ends(); took > limit {
		t.Errorf("pod went %s after its deletion, at its deadline", took)
	}
}

// P10: connections that the pod has opened itself, of a pool to a database, do not hold it.
func TestP10OutboundPoolDoesNotHold(t *testing.T) {
	t.Parallel()
	const protocol = "tcp"
	s := productSpace(t)
	database, _ := s.serve(server{name: "database", node: "n2", onTerm: "exit", bare: true, grace: 1})
	pool := traffic.Client{
		Protocol: protocol, Address: addressOf(database.Status.PodIP, protocol), Concurrency: 3,
		Transfer: traffic.Transfer{Bytes: 1 << 20, Duration: 10 * time.Minute}, Count: 3,
	}
	d := newDrainCase(s, server{grace: 300, change: func(spec *corev1.PodSpec) {
		with := spec.Containers[0] // its hook, and the mount of it
		with.Name, with.Args, with.ReadinessProbe = "pool", clientArgs(pool), nil
		spec.Containers = append(spec.Containers, with)
	}})
	s.eventually("the pool is open", func(ctx context.Context) error {
		return s.connected(ctx, "n2", database.Status.PodIP, "tcp", pool.Count)
	})
	d.delete()
	d.releasedAtOnce("There was no session")
	if err := s.connected(t.Context(), "n2", database.Status.PodIP, "tcp", pool.Count); err != nil {
		t.Errorf("the pool was not open to the end: %v", err)
	}
	s.kubectl("delete", "pod", database.Name, "--grace-period=1") // the pool's program goes on after SIGTERM
	d.ends()
}

// P11: sessions through the ClusterIP, through the NodePort of another node and straight to the pod count, each once.
func TestP11EveryWayToThePodCountsOnce(t *testing.T) {
	t.Parallel()
	everyWay(drainCase(t, server{grace: 300}))
}

// everyWay needs two nodes.
func everyWay(d *drained) {
	d.Helper()
	const protocol = "tcp"
	clusterIP := addressOf(d.service.Spec.ClusterIP, protocol)
	all := []conn{
		d.dial(d.node("n2").Namespace(), clusterIP),
		d.dial(d.node("n1").Namespace(), clusterIP),
		d.dial(d.c.Outside, d.nodePortOf(d.service, "n2", protocol)),
		d.dial(d.c.Outside, d.nodePortOf(d.service, "n1", protocol)),
		d.dial(d.c.Outside, d.direct(protocol)),
	}
	d.tracked(d.pod.Status.PodIP, len(all))
	d.delete()
	d.event(d.pod, "Draining", sessions(len(all)))
	for _, c := range all[:len(all)-1] {
		c.open()
		c.Close()
	}
	d.holds(7 * time.Second)
	all[len(all)-1].Close()
	d.event(d.pod, "Drained", "The last session has ended")
	d.ends()
}

// P9: a client that has vanished without a FIN holds its pod as long as it would if it were there: to the deadline.
func TestP9VanishedClientHoldsToTheDeadline(t *testing.T) {
	t.Parallel()
	const grace, budget = 20 * time.Second, 16 * time.Second
	d := drainCase(t, server{grace: int64(grace.Seconds())})
	c := d.vanishing("10.200.0.99")
	d.delete()
	d.event(d.pod, "Draining", sessions(1), c.LocalAddr().String())
	text := d.event(d.pod, "DrainExpired", "1 session cut", c.LocalAddr().String())
	if after := secondsAfter(t, text); after < budget || after > grace {
		t.Errorf("expired %s after the hook's start, want %s of a grace of %s", after, budget, grace)
	}
	d.ends()
}

// vanishing opens a connection of a client at an address of its own and takes the address away: nobody is there any more.
func (d *drained) vanishing(address string) conn {
	d.Helper()
	if err := d.c.Outside.AddAddress(address); err != nil {
		d.Fatal(err)
	}
	c := d.dialAs(address, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	if err := d.c.Outside.RemoveAddress(address); err != nil {
		d.Fatal(err)
	}
	return c
}

// dialAs is dial with a source address, from outside of the cluster.
func (d *drained) dialAs(source, address string) conn {
	d.Helper()
	var c net.Conn
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	if err := d.c.Outside.Do(func() (err error) {
		c, err = dialer.DialContext(d.Context(), "tcp", address)
		return err
	}); err != nil {
		d.Fatalf("connect to %s: %v", address, err)
	}
	d.Cleanup(func() { c.Close() })
	return conn{Conn: c, space: d.space}
}

// P23: a client that has said that it sends no more and waits for the answer of a server that is silent for 45 s is not cut.
func TestP23HalfClosedByTheClientIsNotCut(t *testing.T) {
	t.Parallel()
	const silent = 45 * time.Second
	d := drainCase(t, server{grace: 300})
	c := d.dial(d.c.Outside, d.direct("halfclose"))
	c.say("halfclose bytes=1&duration=" + silent.String()) // one byte, at the end of the time
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	d.eventually("half of the connection is closed", func(ctx context.Context) error {
		return d.hasEntry(ctx, "n1", d.pod.Status.PodIP, portOf("tcp"), "CLOSE_WAIT", "sport="+c.port()+" ")
	})
	d.delete()
	d.event(d.pod, "Draining", sessions(1), ":"+c.port())
	if got := c.rest(); len(got) != 1 {
		t.Errorf("%d bytes came, want the one of the answer", len(got))
	}
	if took := time.Since(d.begin); took > silent+limit {
		t.Errorf("the answer took %s", took)
	}
	d.event(d.pod, "Drained", "The last session has ended")
	d.ends()
}

// P23: a connection that the pod has closed and the client never does holds nobody.
func TestP23HalfClosedByThePodDoesNotHold(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 300})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	c.say("download bytes=1&duration=0s")
	if got := c.rest(); len(got) != 1 { // to the server's FIN
		t.Errorf("%d bytes came, want 1", len(got))
	}
	d.eventually("the pod has closed", func(ctx context.Context) error {
		return d.hasEntry(ctx, "n1", d.pod.Status.PodIP, portOf("tcp"), "CLOSE_WAIT", "sport="+c.port()+" ")
	})
	d.delete()
	d.releasedAtOnce()
	if err := d.hasEntry(t.Context(), "n1", d.pod.Status.PodIP, portOf("tcp"), "sport="+c.port()+" "); err != nil {
		t.Errorf("the connection was not there to the end: %v", err)
	}
	d.ends()
}

// P3: a scraper's keep-alive connection to a port that is in no Service holds nobody, nor does one to a port that is
// named exactly metrics beside another one.
func TestP3ScraperDoesNotHold(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		ports []corev1.ServicePort
	}{
		{"a port outside of the Service", portsNamed("http", 8080)},
		{"a port named metrics", portsNamed("http", 8080, "metrics", 7000)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := drainCase(t, server{grace: 300, service: func(spec *corev1.ServiceSpec) { spec.Ports = test.ports }})
			c := d.dial(d.c.Outside, d.direct("tcp"))
			d.tracked(d.pod.Status.PodIP, 1)
			d.delete()
			d.releasedAtOnce()
			c.rest() // the end of the server ends it, and nothing else
			d.ends()
		})
	}
}

// P3: a port with another name counts, even if it is the metrics' one, and the Event names it.
func TestP3PortNamedHTTPMetricsHolds(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 300, service: func(spec *corev1.ServiceSpec) {
		spec.Ports = portsNamed("http", 8080, "http-metrics", 7000)
	}})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	d.event(d.pod, "Draining", sessions(1), c.LocalAddr().String(), "port 7000/tcp")
	c.open()
	c.Close()
	d.event(d.pod, "Drained")
	d.ends()
}
