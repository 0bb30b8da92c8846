//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// client is one connection at a time to the server.
type client struct {
	server    server
	truth     *truth
	namespace *netlab.Namespace
	seed      uint64
	number    uint64

	raw  net.Conn
	conn net.Conn
	in   *bufio.Reader
	self netip.AddrPort
	rand *rand.Rand
}

// run does the kind's exchanges until ctx ends.
func (c *client) run(ctx context.Context, k kind) error {
	c.rand = rand.New(rand.NewPCG(c.seed, c.number))
	if err := c.connect(ctx); err != nil {
		return err
	}
	defer c.raw.Close()
	// A read that waits for a slow answer ends with the trial.
	defer context.AfterFunc(ctx, func() { _ = c.raw.SetDeadline(time.Unix(1, 0)) })()
	for turn := 0; ctx.Err() == nil; turn++ {
		if err := k.turn(ctx, c, turn); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (c *client) connect(ctx context.Context) (err error) {
	to := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), c.server.port).String()
	c.raw, err = c.namespace.Dial(ctx, "tcp", to)
	if err != nil {
		return err
	}
	c.self = c.raw.LocalAddr().(*net.TCPAddr).AddrPort()
	c.conn = c.raw
	if c.server.tls {
		secure := tls.Client(c.raw, &tls.Config{InsecureSkipVerify: true}) // it is ours, and made a moment ago
		if err := secure.HandshakeContext(ctx); err != nil {
			return err
		}
		c.conn = secure
	}
	c.in = bufio.NewReader(c.conn)
	return nil
}

// get sends a request and reads its answer.
func (c *client) get(query string) error {
	c.truth.begin(c.self)
	if err := c.send("GET /?" + query + " HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
		return err
	}
	return c.finish(nil)
}

func (c *client) send(text string) error {
	_, err := io.WriteString(c.conn, text)
	c.truth.sent(c.self)
	return err
}

// finish reads the answer to the end. slow, if given, is called before each read.
func (c *client) finish(slow func()) error {
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	buffer := make([]byte, 64<<10)
	for err == nil {
		if slow != nil {
			slow()
		}
		_, err = resp.Body.Read(buffer)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	c.truth.end(c.self)
	return resp.Body.Close()
}

// post sends a request with a body, whose second part comes later by pause.
func (c *client) post(ctx context.Context, query string, size int, pause time.Duration) error {
	c.truth.begin(c.self)
	head := fmt.Sprintf("POST /?%s HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n", query, size)
	if err := c.send(head + strings.Repeat("x", size/2)); err != nil {
		return err
	}
	rest(ctx, pause)
	if err := c.send(strings.Repeat("x", size-size/2)); err != nil {
		return err
	}
	return c.finish(nil)
}

// expect sends a request that asks whether its body is wanted.
func (c *client) expect(ctx context.Context, query string, size int, pause time.Duration) error {
	c.truth.begin(c.self)
	head := fmt.Sprintf("POST /?%s HTTP/1.1\r\nHost: bench\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", query, size)
	if err := c.send(head); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil { // it has none
		return err
	}
	if resp.StatusCode != http.StatusContinue {
		return fmt.Errorf("status %s, want 100", resp.Status)
	}
	rest(ctx, pause)
	if err := c.send(strings.Repeat("x", size)); err != nil {
		return err
	}
	return c.finish(nil)
}

// rest waits, but not beyond ctx.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
