package traffic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Client makes transfers from one server.
type Client struct {
	Protocol string // one of Protocols
	Address  string // host:port
	Transfer Transfer

	Count       int           // transfers; 0: until Run is told to stop
	Concurrency int           // workers, each with a connection of its own; default 1
	Pause       time.Duration // of each worker between two transfers
	Spread      time.Duration // each transfer takes up to this much longer than it says, at random
	Stall       time.Duration // without a byte for this long a transfer counts as cut; default 30 s
	Patience    time.Duration // the server may take that long to be there; not of a datagram protocol
}

// session is one worker's side of a protocol. A transfer that breaks leaves it usable: the next one connects again.
type session interface {
	transfer(ctx context.Context, t Transfer, alive func()) (int64, error)
	close()
}

// dialError marks that no connection was made.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

var protocols = map[string]func(address string) session{
	"http":      func(a string) session { return newHTTPSession(a, http1, false) },
	"keepalive": func(a string) session { return newHTTPSession(a, http1, true) },
	"longpoll":  newPollSession,
	"pool":      func(a string) session { return &poolSession{address: a} },
	"http2":     func(a string) session { return newHTTPSession(a, http2, true) },
	"websocket": func(a string) session { return webSocketSession{a} },
	"grpc":      func(a string) session { return &grpcSession{address: a} },
	"tcp":       func(a string) session { return tcpSession{address: a} },
	"halfclose": func(a string) session { return tcpSession{address: a, half: true} },
	"udp":       func(a string) session { return udpSession{a} },
}

// Protocols are the names of the protocols that a Client speaks:
//
//	http       a new HTTP/1.1 connection for each transfer
//	keepalive  HTTP/1.1, one connection of a worker for all of its transfers
//	longpoll   as keepalive, but the server answers when the time of the transfer is over
//	http2      HTTP/2 without TLS, one connection of a worker
//	websocket  a connection for each transfer, closed with the closing handshake
//	grpc       a server stream for each transfer on one connection of a worker
//	tcp        a connection for each transfer, closed by the server
//	pool       TCP, one connection of a worker for all of its transfers, as of a database
//	halfclose  the same, but the client says first that it will send no more: its FIN comes first
//	udp        a datagram and its echo, for the time of the transfer
func Protocols() []string { return slices.Sorted(maps.Keys(protocols)) }

// Defaults fills what is not set.
func (c *Client) Defaults() {
	if c.Concurrency == 0 {
		c.Concurrency = 1
	}
	if c.Stall == 0 {
		c.Stall = 30 * time.Second
	}
}

// Validate returns every mistake at once.
func (c *Client) Validate() error {
	var errs []error
	if _, ok := protocols[c.Protocol]; !ok {
		errs = append(errs, fmt.Errorf("protocol %q: use one of %s", c.Protocol, strings.Join(Protocols(), ", ")))
	}
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		errs = append(errs, fmt.Errorf("address %q: use host:port", c.Address))
	}
	if c.Transfer.Bytes < 0 || c.Transfer.Duration < 0 || c.Transfer.Gap < 0 || c.Count < 0 || c.Concurrency < 1 || c.Pause < 0 || c.Spread < 0 || c.Stall <= 0 || c.Patience < 0 {
		errs = append(errs, errors.New("bytes, time, gap, count, concurrency, pause, spread, stall and patience cannot be negative"))
	}
	return errors.Join(errs...)
}

// Run makes the transfers and blocks until the last has ended. When stop is closed no further transfer starts; when the
// context ends, those that run are given up, and count as cut.
func (c Client) Run(ctx context.Context, stop <-chan struct{}) (Report, error) {
	c.Defaults()
	if err := c.Validate(); err != nil {
		return Report{}, fmt.Errorf("run client: %w", err)
	}
	if c.Patience > 0 && c.Protocol != "udp" {
		c.awaitServer(ctx, stop)
	}
	var all tally
	all.r.Protocol = c.Protocol
	var workers sync.WaitGroup
	for range c.Concurrency {
		workers.Go(func() { c.work(ctx, stop, &all) })
	}
	workers.Wait()
	return all.r, nil
}

// connectEvery is how often a worker tries a server that is not there.
const connectEvery = 200 * time.Millisecond

// awaitServer blocks until a connection could be made, for Patience at the most: a Service refuses until each node knows
// of its first endpoint.
func (c Client) awaitServer(ctx context.Context, stop <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, c.Patience)
	defer cancel()
	again := time.NewTicker(connectEvery)
	defer again.Stop()
	for {
		if _, done, err := dial(ctx, "tcp", c.Address); err == nil {
			done()
			return
		}
		select {
		case <-again.C:
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (c Client) work(ctx context.Context, stop <-chan struct{}, all *tally) {
	s := protocols[c.Protocol](c.Address)
	defer s.close()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-stop:
			return
		case <-pause.C:
		}
		select {
		case <-stop: // both were ready
			return
		default:
		}
		if !all.start(c.Count) {
			return
		}
		n, err := c.one(ctx, s)
		refused := errors.As(err, new(dialError))
		all.end(n, err, refused)
		wait := c.Pause
		if refused {
			wait = max(wait, connectEvery)
		}
		pause.Reset(wait)
	}
}

// one makes a transfer and gives it up after Stall without a byte.
func (c Client) one(ctx context.Context, s session) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(c.Stall, func() { cancel(fmt.Errorf("no byte for %s", c.Stall)) })
	defer stalled.Stop()
	t := c.Transfer
	if c.Spread > 0 {
		t.Duration += rand.N(c.Spread)
	}
	n, err := s.transfer(ctx, t, func() { stalled.Reset(c.Stall) })
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return n, err
}

// dial connects for a transfer; closing the context closes the connection's reads and writes too.
func dial(ctx context.Context, network, address string) (net.Conn, func(), error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, nil, dialError{err}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return conn, func() { stop(); conn.Close() }, nil
}

// reader calls alive for whatever comes.
type reader struct {
	r     interface{ Read([]byte) (int, error) }
	alive func()
}

func (r reader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.alive()
	}
	return n, err
}
