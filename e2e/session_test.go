package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/cluster"
)

// drained is a pod that has our hook, whose sessions a case opens and closes itself: nothing in them depends on time.
type drained struct {
	space
	pod     corev1.Pod
	service *corev1.Service
	begin   time.Time // of the deletion
}

// drainCase serves a pod on n1 of the shared cluster, which has no sessions but the case's. No other takes its place.
func drainCase(t *testing.T, srv server) *drained {
	t.Helper()
	return newDrainCase(productSpace(t), srv)
}

func newDrainCase(s space, srv server) *drained {
	s.Helper()
	if srv.name == "" {
		srv.name = "web"
	}
	if srv.node == "" {
		srv.node = "n1"
	}
	srv.onTerm, srv.hook, srv.bare, srv.quiet = "exit", true, true, true
	d := &drained{space: s}
	d.pod, d.service = s.serve(srv)
	return d
}

// replacedCase is drainCase with a Deployment, whose next pod takes what comes later.
func replacedCase(t *testing.T, srv server) *drained {
	t.Helper()
	d := &drained{space: productSpace(t)}
	srv.name, srv.node, srv.onTerm, srv.hook, srv.quiet = "web", "n1", "exit", true, true
	d.pod, d.service = d.serve(srv)
	return d
}

// delete deletes the pod, with the grace period of its spec.
func (d *drained) delete() {
	d.Helper()
	d.begin = time.Now()
	if err := d.c.Client.CoreV1().Pods(d.name).Delete(d.Context(), d.pod.Name, metav1.DeleteOptions{}); err != nil {
		d.Fatalf("delete pod: %v", err)
	}
}

// ends blocks until the pod is gone, and returns how long after its deletion that is.
func (d *drained) ends() time.Duration {
	d.Helper()
	d.gone(d.pod)
	took := time.Since(d.begin)
	d.Logf("pod went %s after its deletion", took)
	return took
}

// holds makes sure that the pod is not let go for so long.
func (d *drained) holds(least time.Duration) {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), least)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pod, err := d.c.Client.CoreV1().Pods(d.name).Get(d.Context(), d.pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			d.Fatalf("pod is gone %s after its deletion", time.Since(d.begin))
		}
		if err != nil {
			d.Fatal(err)
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Running == nil {
				d.Fatalf("container %s has ended %s after the pod's deletion: %+v", c.Name, time.Since(d.begin), c.State)
			}
		}
	}
}

// conn is a TCP connection that a case holds, from a namespace of the cluster.
type conn struct {
	net.Conn
	space
}

// dial opens a connection to the pod's server, which waits for a first line and says nothing. At an address of the pod's
// own or the Service's, or at a node's port.
func (d *drained) dial(from cluster.Namespace, address string) conn {
	d.Helper()
	var c net.Conn
	d.eventually("connection to "+address, func(ctx context.Context) (err error) {
		c, err = from.Dial(ctx, "tcp", address)
		return err
	})
	d.Cleanup(func() { c.Close() })
	return conn{Conn: c, space: d.space}
}

// direct is the pod's own address for a protocol.
func (d *drained) direct(protocol string) string { return addressOf(d.pod.Status.PodIP, protocol) }

// say sends a line.
func (c conn) say(line string) {
	c.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		c.Fatalf("write to %s: %v", c.RemoteAddr(), err)
	}
}

// rest reads until the server ends the connection.
func (c conn) rest() string {
	c.Helper()
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		c.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		c.Fatalf("read from %s: %v", c.RemoteAddr(), err)
	}
	return string(b)
}

// open fails the test if the other side has ended the connection or said something.
func (c conn) open() {
	c.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		c.Fatal(err)
	}
	var b [1]byte
	n, err := c.Read(b[:])
	if timeout, ok := errors.AsType[net.Error](err); n > 0 || !ok || !timeout.Timeout() {
		c.Fatalf("connection to %s is not open and silent: %d bytes, %v", c.RemoteAddr(), n, err)
	}
}

// port is the client's port.
func (c conn) port() string {
	_, port, _ := net.SplitHostPort(c.LocalAddr().String())
	return port
}

// tracked blocks until the pod's node has so many ESTABLISHED entries of its port for plain TCP at the address.
func (d *drained) tracked(address string, want int) {
	d.Helper()
	d.eventually("sessions of "+address, func(ctx context.Context) error {
		return d.connected(ctx, d.pod.Spec.NodeName, address, "tcp", want)
	})
}

// served blocks until the pod has so many sessions of a protocol.
func (d *drained) served(protocol string, want int) {
	d.Helper()
	d.eventually(protocol+" sessions of the pod", func(ctx context.Context) error {
		return d.connected(ctx, d.pod.Spec.NodeName, d.pod.Status.PodIP, protocol, want)
	})
}

func sessions(n int) string {
	if n == 1 {
		return "for 1 session:"
	}
	return "for " + strconv.Itoa(n) + " sessions:"
}

// hasEntry is an error unless the node has a TCP entry of the pod's port with all the words.
func (s space) hasEntry(ctx context.Context, node, address string, port int, words ...string) error {
	all, err := s.entries(ctx, node, "tcp", address, port)
	if err != nil {
		return err
	}
	for _, e := range all {
		if hasAll(string(e), words) {
			return nil
		}
	}
	return fmt.Errorf("no entry of port %d has %q: %q", port, words, all)
}

// connected is an error unless the node has so many ESTABLISHED entries of an address's port for plain TCP.
func (s space) connected(ctx context.Context, node, address, protocol string, want int) error {
	all, err := s.entries(ctx, node, "tcp", address, portOf(protocol))
	if err != nil {
		return err
	}
	n := 0
	for _, e := range all {
		if strings.Contains(string(e), "ESTABLISHED") {
			n++
		}
	}
	if n != want {
		return fmt.Errorf("%d of %d are ESTABLISHED: %q", n, want, all)
	}
	return nil
}
