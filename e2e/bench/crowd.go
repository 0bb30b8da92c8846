package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// session is one TCP connection from outside of the cluster to a pod, on which nobody says anything until it ends.
type session struct {
	conn *net.TCPConn
	over chan struct{} // closed when the server's side has ended

	mu    sync.Mutex
	ended time.Time // when the client said that it would; zero before
	cut   bool      // the server's side ended first
}

// connect opens n sessions with a pod and blocks until all are there.
func (s *site) connect(ctx context.Context, pod corev1.Pod, n int) (crowd, error) {
	var c crowd
	address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(traffic.DefaultPorts.TCP))
	for range n {
		conn, err := s.Outside.Dial(ctx, "tcp", address)
		if err != nil {
			c.abandon()
			return nil, fmt.Errorf("open a session with %s: %w", pod.Name, err)
		}
		o := &session{conn: conn.(*net.TCPConn), over: make(chan struct{})}
		go o.await()
		c = append(c, o)
	}
	return c, nil
}

// await ends with the connection.
func (o *session) await() {
	defer close(o.over)
	var b [1]byte
	_, err := o.conn.Read(b[:])
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cut = o.ended.IsZero() || !errors.Is(err, io.EOF)
}

// end closes the client's half and blocks until the server has closed its own. It returns when it began to: the session's
// end as the kernel sees it is a moment later, which is to the disadvantage of what is measured from here.
func (o *session) end(ctx context.Context) (time.Time, error) {
	defer o.conn.Close()
	o.mu.Lock()
	now := time.Now()
	if !o.cut {
		o.ended = now
	}
	err := o.conn.CloseWrite()
	o.mu.Unlock()
	if err != nil {
		return now, nil // cut: that is counted
	}
	select {
	case <-o.over:
		return now, nil
	case <-ctx.Done():
		return now, ctx.Err()
	}
}

// wasCut says that the server ended it.
func (o *session) wasCut() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cut
}

// crowd are sessions with one pod.
type crowd []*session

func (c crowd) cut() int {
	n := 0
	for _, o := range c {
		if o.wasCut() {
			n++
		}
	}
	return n
}

// abandon lets go of what is left, and waits for those who read.
func (c crowd) abandon() {
	for _, o := range c {
		_ = o.conn.Close()
		<-o.over
	}
}
