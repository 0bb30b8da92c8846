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
	"sync"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// client is one of a trial's clients. It has one connection at a time.
type client struct {
	namespace *netlab.Namespace
	to        netip.AddrPort
	secure    bool
	// files says that the server has one file and knows only its parts.
	files bool
	truth *truth
	// ids gives each request its number.
	ids  func() uint64
	rand *rand.Rand

	raw  *net.TCPConn
	conn net.Conn
	in   *bufio.Reader
	self netip.AddrPort
	// requests are those on their way: in HTTP/2 there can be several.
	mu       sync.Mutex
	requests map[uint64]struct{}
}

// tries bounds how often a client connects anew after a failure: a share of failures
// is part of real servers, and a kind that always fails is a mistake here.
const tries = 20

// run does the kind's turns until ctx ends, on a new connection where one has failed.
func (c *client) run(ctx context.Context, k kind) error {
	for failures := 0; ctx.Err() == nil; {
		c.requests = make(map[uint64]struct{})
		err := c.once(ctx, k)
		for id := range c.requests {
			if ctx.Err() == nil {
				c.truth.fail(id)
			}
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		if failures++; failures >= tries {
			return fmt.Errorf("after %d failures: %w", failures, err)
		}
		rest(ctx, 100*ms)
	}
	return nil
}

// once does the kind's turns on one connection, until it fails, the kind has had
// enough of it, or ctx ends.
func (c *client) once(ctx context.Context, k kind) error {
	if err := c.connect(ctx, k); err != nil {
		return err
	}
	defer c.raw.Close()
	// A read that waits for a slow answer ends with the trial.
	defer context.AfterFunc(ctx, func() { _ = c.raw.SetDeadline(time.Unix(1, 0)) })()
	if k.whole != nil {
		return k.whole(ctx, c)
	}
	for turn := 0; ctx.Err() == nil && (k.turns == 0 || turn < k.turns); turn++ {
		if err := k.turn(ctx, c, turn); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) connect(ctx context.Context, k kind) error {
	conn, err := c.namespace.Dial(ctx, "tcp", c.to.String())
	if err != nil {
		return err
	}
	c.raw = conn.(*net.TCPConn)
	c.self = c.raw.LocalAddr().(*net.TCPAddr).AddrPort()
	c.conn = c.raw
	if k.buffer > 0 {
		if err := c.raw.SetReadBuffer(k.buffer); err != nil {
			return errors.Join(err, c.raw.Close())
		}
	}
	if k.probes > 0 {
		probes := net.KeepAliveConfig{Enable: true, Idle: k.probes, Interval: k.probes, Count: 9}
		if err := c.raw.SetKeepAliveConfig(probes); err != nil {
			return errors.Join(err, c.raw.Close())
		}
	}
	if c.secure {
		config := &tls.Config{InsecureSkipVerify: true} // it is ours, and made a moment ago
		if k.h2 || k.grpc {
			config.NextProtos = []string{"h2"}
		}
		secure := tls.Client(c.raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return errors.Join(err, c.raw.Close())
		}
		c.conn = secure
	}
	c.in = bufio.NewReader(c.conn)
	return nil
}

// begin gives a request its number and notes that it begins.
func (c *client) begin() uint64 {
	id := c.ids()
	c.truth.begin(id, c.self)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[id] = struct{}{}
	return id
}

// done notes that a request's answer has been read.
func (c *client) done(id uint64) {
	c.truth.now(id, ended)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.requests, id)
}

// head is a request up to its empty line, with more headers.
func (c *client) head(method string, a ask, id uint64, more string) string {
	path := "/?"
	if c.files {
		path = "/file?"
		more += fmt.Sprintf("Range: bytes=0-%d\r\n", max(1, a.size)-1)
	}
	return method + " " + path + a.query(id) + " HTTP/1.1\r\nHost: bench\r\nUser-Agent: conndrain-bench\r\nAccept: */*\r\n" + more + "\r\n"
}

// get sends a request and reads its answer.
func (c *client) get(a ask) error {
	id := c.begin()
	if err := c.send(id, c.head(http.MethodGet, a, id, "")); err != nil {
		return err
	}
	return c.finish(id, nil)
}

// send writes a part of a request.
func (c *client) send(id uint64, text string) error {
	_, err := io.WriteString(c.conn, text)
	c.truth.now(id, sent)
	return err
}

// finish reads an answer to its end. slow, if given, is called before each read.
func (c *client) finish(id uint64, slow func()) error {
	resp, err := c.final()
	if err != nil {
		return err
	}
	buffer := make([]byte, 32<<10)
	for err == nil {
		if slow != nil {
			slow()
		}
		_, err = resp.Body.Read(buffer)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	c.done(id)
	return resp.Body.Close()
}

// final reads the headers of an answer that is no interim one.
func (c *client) final() (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(c.in, nil)
		if err != nil || resp.StatusCode >= http.StatusOK {
			return resp, err
		}
		if err := resp.Body.Close(); err != nil { // it has none
			return nil, err
		}
	}
}

// pieces sends a request in pieces with a pause before each but the first, and reads
// its answer.
func (c *client) pieces(ctx context.Context, id uint64, pause time.Duration, all ...string) error {
	for i, text := range all {
		if i > 0 {
			rest(ctx, pause)
		}
		if i == len(all)-1 {
			c.truth.now(id, body)
		}
		if err := c.send(id, text); err != nil {
			return err
		}
	}
	return c.finish(id, nil)
}

// post sends a request with a body in two halves.
func (c *client) post(ctx context.Context, a ask, size int, pause time.Duration) error {
	id := c.begin()
	head := c.head(http.MethodPost, a, id, fmt.Sprintf("Content-Length: %d\r\n", size))
	return c.pieces(ctx, id, pause, head+strings.Repeat("x", size/2), strings.Repeat("x", size-size/2))
}

// expect sends a request that asks whether its body is wanted.
func (c *client) expect(ctx context.Context, a ask, size int, pause time.Duration) error {
	id := c.begin()
	head := c.head(http.MethodPost, a, id, fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d\r\n", size))
	if err := c.send(id, head); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusContinue {
		return fmt.Errorf("status %s, want 100", resp.Status)
	}
	if err := resp.Body.Close(); err != nil { // it has none
		return err
	}
	rest(ctx, pause)
	return c.pieces(ctx, id, 0, strings.Repeat("x", size))
}

// pipeline sends several requests at once, then reads their answers.
func (c *client) pipeline(all ...ask) error {
	var ids []uint64
	var text strings.Builder
	for _, a := range all {
		id := c.begin()
		ids = append(ids, id)
		text.WriteString(c.head(http.MethodGet, a, id, ""))
	}
	_, err := io.WriteString(c.conn, text.String())
	for _, id := range ids {
		c.truth.now(id, sent)
	}
	for _, id := range ids {
		if err != nil {
			return err
		}
		err = c.finish(id, nil)
	}
	return err
}

// half sends a request, closes this half of the connection, and reads the answer.
func (c *client) half(a ask) error {
	id := c.begin()
	if err := c.send(id, c.head(http.MethodGet, a, id, "")); err != nil {
		return err
	}
	if err := c.raw.CloseWrite(); err != nil {
		return err
	}
	return c.finish(id, nil)
}
