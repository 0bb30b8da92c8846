//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// site is a client, a node and a pod, with a server in the pod that closes when
// its client has.
type site struct {
	*netlab.Lab
	server net.Listener
}

func newSite(ctx context.Context) (*site, error) {
	lab, err := netlab.NewLab(netlab.LabOptions{})
	if err != nil {
		return nil, err
	}
	s := &site{Lab: lab}
	// Closed sessions keep their port for a minute.
	if err := lab.Client.Sysctl("net/ipv4/ip_local_port_range", "1024 65535"); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.server, err = lab.Pod.Listen(ctx, "tcp", fmt.Sprintf(":%d", lab.PodPort))
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	go s.serve()
	return s, nil
}

func (s *site) Close() error {
	if s.server != nil {
		_ = s.server.Close()
	}
	return s.Lab.Close()
}

// serve ends when the listener is closed.
func (s *site) serve() {
	for {
		c, err := s.server.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}()
	}
}

// crowd are open sessions of clients with the pod, through the Service.
type crowd []*net.TCPConn

func (s *site) open(ctx context.Context, n int) (crowd, error) {
	var c crowd
	to := netip.AddrPortFrom(s.ServiceAddr, s.ServicePort).String()
	err := s.Client.Do(func() error {
		var d net.Dialer
		for range n {
			conn, err := d.DialContext(ctx, "tcp", to)
			if err != nil {
				return err
			}
			c = append(c, conn.(*net.TCPConn))
		}
		return nil
	})
	if err != nil {
		c.abandon()
		return nil, err
	}
	return c, nil
}

// openUnheard opens sessions whose later events nobody will ever hear of, as it is
// with those that were there before anything on the machine listened. Whether
// that is so now, this bench cannot know: some other listener may run.
func (s *site) openUnheard(ctx context.Context, n int) (crowd, error) {
	const events = "net/netfilter/nf_conntrack_events"
	usual, err := s.Node.ReadSysctl(events)
	if err != nil {
		return nil, err
	}
	if err := s.Node.Sysctl(events, "0"); err != nil {
		return nil, err
	}
	c, err := s.open(ctx, n)
	if err := errors.Join(err, s.Node.Sysctl(events, usual)); err != nil {
		c.abandon()
		return nil, err
	}
	return c, nil
}

// end ends all of them and returns when the last handshake of FINs was done, as
// the clients saw it: the server's FIN acknowledges theirs, and is acknowledged
// by the time that it can be read.
func (c crowd) end() (time.Time, error) {
	defer c.abandon()
	for _, conn := range c {
		if err := conn.CloseWrite(); err != nil {
			return time.Time{}, err
		}
	}
	var b [1]byte
	for _, conn := range c {
		if _, err := conn.Read(b[:]); !errors.Is(err, io.EOF) {
			return time.Time{}, fmt.Errorf("end a session: %w", err)
		}
	}
	return time.Now(), nil
}

func (c crowd) abandon() {
	for _, conn := range c {
		_ = conn.Close()
	}
}
