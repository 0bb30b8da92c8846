//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// h2Conn is a connection of HTTP/2 that can ping.
type h2Conn = http2.ClientConn //nolint:staticcheck // that of net/http cannot

// speakH2 makes an HTTP/2 connection of the client's, and does turns on it until ctx
// ends.
func (c *client) speakH2(ctx context.Context, turn func(*h2Conn) error) error {
	h, err := new(http2.Transport).NewClientConn(c.conn) //nolint:staticcheck // that of net/http has no Ping
	if err != nil {
		return err
	}
	defer h.Close()
	for ctx.Err() == nil {
		if err := turn(h); err != nil {
			return err
		}
	}
	return nil
}

// exchangeH2 sends a request with a body, if it has a size, and reads its answer.
func (c *client) exchangeH2(ctx context.Context, h *h2Conn, a ask, size int) error {
	id := c.begin()
	method, content := http.MethodGet, io.Reader(http.NoBody)
	if size > 0 {
		method, content = http.MethodPost, strings.NewReader(strings.Repeat("x", size))
	}
	scheme := "http"
	if c.secure {
		scheme = "https"
	}
	r, err := http.NewRequestWithContext(ctx, method, scheme+"://bench/?"+a.query(id), content)
	if err != nil {
		return err
	}
	resp, err := h.RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	c.done(id)
	return nil
}

// h2 is a kind that does the same exchange again and again.
func h2(a ask, size int, pause time.Duration) func(context.Context, *client) error {
	return func(ctx context.Context, c *client) error {
		return c.speakH2(ctx, func(h *h2Conn) error {
			return then(ctx, c.exchangeH2(ctx, h, a, size), pause)
		})
	}
}

// beside does something again and again while an exchange lasts.
func beside(a ask, every time.Duration, other func(context.Context, *client, *h2Conn) error) func(context.Context, *client) error {
	return func(ctx context.Context, c *client) error {
		return c.speakH2(ctx, func(h *h2Conn) error {
			g, ctx := errgroup.WithContext(ctx)
			over := make(chan struct{})
			g.Go(func() error {
				defer close(over)
				return c.exchangeH2(ctx, h, a, 0)
			})
			g.Go(func() error {
				for {
					rest(ctx, every)
					select {
					case <-over:
						return nil
					case <-ctx.Done():
						return nil
					default:
					}
					if err := other(ctx, c, h); err != nil {
						return err
					}
				}
			})
			return then(ctx, g.Wait(), 300*ms)
		})
	}
}

func ping(ctx context.Context, _ *client, h *h2Conn) error { return h.Ping(ctx) }

func fast(ctx context.Context, c *client, h *h2Conn) error {
	return c.exchangeH2(ctx, h, ask{size: 300}, 0)
}

// callGRPC makes a gRPC connection of the client's, and calls the method again and
// again with a message of the size.
func callGRPC(method string, a ask, size int, pause time.Duration) func(context.Context, *client) error {
	return func(ctx context.Context, c *client) error {
		dialed := false
		conn, err := grpc.NewClient("passthrough:///bench",
			grpc.WithTransportCredentials(insecure.NewCredentials()), // where there is TLS, the connection has it
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
				if dialed {
					return nil, errors.New("the connection is over")
				}
				dialed = true
				return c.conn, nil
			}))
		if err != nil {
			return err
		}
		defer conn.Close()
		for ctx.Err() == nil {
			if err := c.call(ctx, conn, method, a, size); err != nil {
				return err
			}
			rest(ctx, pause)
		}
		return nil
	}
}

func (c *client) call(ctx context.Context, conn *grpc.ClientConn, method string, a ask, size int) error {
	// Without its deadline, which the server is told and can be a moment ahead of: the
	// trial's end would look like its failure.
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	ctx = whole
	id := c.begin()
	text := a.query(id) + " "
	message := append([]byte(text), bytes.Repeat([]byte("x"), max(0, size-len(text)))...)
	var answer []byte
	if method == grpcUnary {
		if err := conn.Invoke(ctx, method, &message, &answer); err != nil {
			return err
		}
		c.done(id)
		return nil
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(&message), stream.CloseSend()); err != nil {
		return err
	}
	for err == nil {
		err = stream.RecvMsg(&answer)
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("receive: %w", err)
	}
	c.done(id)
	return nil
}
