//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// kind is a kind of traffic.
type kind struct {
	name string
	// turn is one exchange and the pause after it; turns, if set, is how many of them
	// a connection has. whole, if given, does all of a connection instead.
	turn  func(ctx context.Context, c *client, turn int) error
	turns int
	whole func(ctx context.Context, c *client) error
	// h2 and grpc are what the connection speaks, if not HTTP/1.1.
	h2, grpc bool
	// buffer is the size of the client's receive buffer, probes the time between TCP
	// keepalive's; 0 is as usual, and none.
	buffer int
	probes time.Duration
	// servers are those that can do it, with and without TLS unless plain is set. None
	// means all but the one that only has a file; files means that one too.
	servers      []string
	plain, files bool
	// parts says that answers pause between their parts: the first of a port may be
	// taken for complete by the wide rule.
	parts bool
	// opaque kinds cannot be seen into: they are printed, and nothing is promised.
	opaque bool
	// rival is what of its pauses is found by the two rules that this one has to match,
	// in percent; nil where nobody has measured it.
	rival *rival
}

// rival is the share of pauses found by the strict and the wide rule of before.
type rival struct{ strict, wide int }

const ms = time.Millisecond

// on says whether a server can do it.
func (k kind) on(server string) bool {
	name, secure := strings.CutSuffix(server, secureSuffix)
	switch {
	case k.plain && secure:
		return false
	case k.grpc:
		return name == "go"
	case k.h2 && name == "gunicorn":
		return false
	case name == "nginx":
		return k.files
	}
	return len(k.servers) == 0 || slices.Contains(k.servers, name)
}

var short = ask{size: 300}

// kinds are all, those that can be seen into first.
var kinds = slices.Concat(pauses, shapes, streams, opaques)

// pauses are kinds that differ in their times.
var pauses = []kind{
	{name: "short every 200 ms", turn: exchange(short, 200*ms), files: true, rival: &rival{95, 95}},
	{name: "short at 10 ms", turn: exchange(short, 10*ms), files: true},
	{name: "slow 1.5 s, think 0", turn: exchange(ask{size: 300, work: 1500}, 0)},
	{name: "slow 1.5 s, think 50 ms", turn: exchange(ask{size: 300, work: 1500}, 50*ms)},
	{name: "slow 1.5 s, think 200 ms", turn: exchange(ask{size: 300, work: 1500}, 200*ms), rival: &rival{91, 91}},
	{name: "fast x5 then slow, think 0", turn: func(_ context.Context, c *client, turn int) error {
		if turn%6 == 5 {
			return c.get(ask{size: 300, work: 1500})
		}
		return c.get(short)
	}},
	{name: "fast and slow mixed, pauses", rival: &rival{25, 65}, turn: func(ctx context.Context, c *client, _ int) error {
		a := short
		if c.rand.IntN(3) == 0 {
			a.work = 200 + c.rand.IntN(800)
		}
		return then(ctx, c.get(a), time.Duration(c.rand.IntN(400))*ms)
	}},
	{name: "random work and think 0-300 ms", rival: &rival{88, 92}, turn: func(ctx context.Context, c *client, _ int) error {
		return then(ctx, c.get(ask{size: 300, work: c.rand.IntN(300)}), time.Duration(c.rand.IntN(300))*ms)
	}},
	{name: "random sizes", files: true, rival: &rival{0, 86}, turn: func(ctx context.Context, c *client, _ int) error {
		a := ask{size: 1 + c.rand.IntN(20000)}
		if !c.files {
			a.work = c.rand.IntN(200)
		}
		return then(ctx, c.get(a), time.Duration(200+c.rand.IntN(200))*ms)
	}},
	{name: "long poll", turn: func(_ context.Context, c *client, _ int) error {
		return c.get(ask{size: 300, work: 3000 + c.rand.IntN(4000)})
	}},
	{name: "TCP keepalive, slow 2.5 s", probes: time.Second, turn: exchange(ask{size: 300, work: 2500}, 2500*ms)},
	{name: "few turns on a connection", turns: 5, turn: exchange(short, 250*ms)},
	{name: "a connection for each request", turns: 1, turn: func(ctx context.Context, c *client, _ int) error {
		return then(ctx, c.get(ask{size: 300, work: c.rand.IntN(300)}), 0)
	}},
}

// shapes are kinds that differ in how a request or an answer comes.
var shapes = []kind{
	{name: "request in two segments", rival: &rival{66, 83}, turn: func(ctx context.Context, c *client, _ int) error {
		return then(ctx, c.post(ctx, short, 2000, time.Duration(100+c.rand.IntN(400))*ms), 600*ms)
	}},
	{name: "headers in two segments", turn: func(ctx context.Context, c *client, _ int) error {
		id := c.begin()
		head := c.head(http.MethodGet, ask{size: 300, work: 100}, id, "")
		return then(ctx, c.pieces(ctx, id, 400*ms, head[:len(head)-10], head[len(head)-10:]), 300*ms)
	}},
	{name: "request and answer over a segment", turn: large(0)},
	{name: "the same, work of 5 to 25 ms", turn: large(20)},
	{name: "head and body apart, answer over a segment", turn: func(ctx context.Context, c *client, _ int) error {
		return then(ctx, c.post(ctx, ask{size: 5000}, 1000, 0), 300*ms)
	}},
	{name: "upload", rival: &rival{44, 45}, turn: func(ctx context.Context, c *client, _ int) error {
		return then(ctx, c.post(ctx, ask{size: 300, work: c.rand.IntN(500)}, 1<<20, 20*ms), 300*ms)
	}},
	{name: "bulk, slow reader", buffer: 64 << 10, files: true, rival: &rival{84, 84}, turn: read(1<<20, 0, 20*ms)},
	{name: "zero window for 3 s", buffer: 64 << 10, files: true, turn: read(1<<20, 3*time.Second, 0)},
	{name: "100-continue", servers: []string{"go", "nginx-go", "node", "gunicorn"}, rival: &rival{92, 92},
		turn: func(ctx context.Context, c *client, _ int) error {
			return then(ctx, c.expect(ctx, short, 1000, 1500*ms), 1500*ms)
		}},
	{name: "100-continue, think 0", servers: []string{"go", "nginx-go", "node", "gunicorn"},
		turn: func(ctx context.Context, c *client, _ int) error { return c.expect(ctx, short, 1000, 1500*ms) }},
	{name: "pipelining", servers: []string{"go", "nginx-go", "node"}, turn: func(ctx context.Context, c *client, _ int) error {
		slow := ask{size: 300, work: 300}
		return then(ctx, c.pipeline(short, slow, slow), 300*ms)
	}},
	{name: "half-close", turns: 1, plain: true, servers: []string{"go", "node", "gunicorn"},
		turn: func(_ context.Context, c *client, _ int) error { return c.half(ask{size: 300, work: 1500}) }},
}

// streams are kinds whose answers come in parts.
var streams = []kind{
	{name: "chunks every 300 ms", parts: true, rival: &rival{25, 25}, turn: exchange(ask{size: 300, parts: 6, pause: 300}, 300*ms)},
	{name: "answer in two writes, work between", parts: true, rival: &rival{0, 0}, turn: func(ctx context.Context, c *client, _ int) error {
		return then(ctx, c.get(ask{size: 300, parts: 2, pause: 100 + c.rand.IntN(400)}), 300*ms)
	}},
	{name: "answer in two writes, think 0", parts: true, turn: exchange(ask{size: 300, parts: 2, pause: 400}, 0)},
	{name: "first stream after 40 s of short", parts: true, rival: &rival{89, 91}, turn: func(ctx context.Context, c *client, turn int) error {
		if turn%180 == 179 {
			return then(ctx, c.get(ask{size: 300, parts: 5, pause: 1000}), 200*ms)
		}
		return then(ctx, c.get(short), 200*ms)
	}},
	{name: "streams with few long pauses", parts: true, turn: func(ctx context.Context, c *client, _ int) error {
		a := ask{size: 200 + c.rand.IntN(500), parts: 4, pause: 50 + c.rand.IntN(100)}
		if c.rand.IntN(8) == 0 {
			a.parts, a.pause = 2, 3000
		}
		return then(ctx, c.get(a), 300*ms)
	}},
	{name: "now and then a stream, ever-new sizes", parts: true, turn: func(ctx context.Context, c *client, turn int) error {
		a := ask{size: 200 + c.rand.IntN(5000)}
		if turn%30 == 29 {
			a.parts, a.pause = 2+c.rand.IntN(4), 300+c.rand.IntN(2500)
		}
		return then(ctx, c.get(a), 250*ms)
	}},
}

// opaques are kinds that no look can see into.
var opaques = []kind{
	{name: "headers early, 1 s", parts: true, opaque: true, rival: &rival{10, 10}, turn: exchange(ask{size: 3000, early: 1000}, 300*ms)},
	{name: "answer before the request is complete", opaque: true, servers: []string{"go", "node"}, files: true,
		turn: func(ctx context.Context, c *client, _ int) error {
			return then(ctx, c.post(ctx, ask{size: 300, now: true}, 20000, 600*ms), 300*ms)
		}},
	{name: "103, then 1.5 s", parts: true, opaque: true, servers: []string{"go", "node"}, turn: exchange(ask{size: 300, hint: 1500}, 300*ms)},
	{name: "server-sent events every 3 s", parts: true, opaque: true, turn: exchange(ask{size: 80, parts: 5, pause: 3000, early: 200, chunked: true}, 300*ms)},
	{name: "WebSocket, message every 300 ms", opaque: true, servers: []string{"go", "node"}, whole: webSocket},
	{name: "HTTP/2 GET slow 1.5 s", opaque: true, h2: true, whole: h2(ask{size: 300, work: 1500}, 0, 300*ms)},
	{name: "HTTP/2 POST 200 B, slow 1.5 s", opaque: true, h2: true, whole: h2(ask{size: 300, work: 1500}, 200, 300*ms)},
	{name: "HTTP/2 POST 100 KB, slow 1.5 s", opaque: true, h2: true, whole: h2(ask{size: 300, work: 1500}, 100<<10, 300*ms)},
	{name: "HTTP/2 slow beside fast", opaque: true, h2: true, whole: beside(ask{size: 300, work: 1500}, 100*ms, fast)},
	{name: "HTTP/2 slow, pings", opaque: true, h2: true, whole: beside(ask{size: 300, work: 3000}, 500*ms, ping)},
	{name: "gRPC unary 100 B, 1.5 s", opaque: true, grpc: true, whole: callGRPC(grpcUnary, ask{size: 100, work: 1500}, 100, 300*ms)},
	{name: "gRPC unary 20 KB, 1.5 s", opaque: true, grpc: true, whole: callGRPC(grpcUnary, ask{size: 100, work: 1500}, 20<<10, 300*ms)},
	{name: "gRPC unary 200 KB, 1.5 s", opaque: true, grpc: true, whole: callGRPC(grpcUnary, ask{size: 100, work: 1500}, 200<<10, 300*ms)},
	{name: "gRPC stream, message every 1 s", parts: true, opaque: true, grpc: true, whole: callGRPC(grpcStream, ask{size: 500, parts: 6, pause: 1000}, 100, 300*ms)},
}

// exchange is a request and a pause after its answer.
func exchange(a ask, pause time.Duration) func(context.Context, *client, int) error {
	return func(ctx context.Context, c *client, _ int) error { return then(ctx, c.get(a), pause) }
}

// large is a request with 2 KB of cookies, as signed ones have, and an answer of 5 KB, at once
// or, with up to so much more, after 5 ms of work.
func large(upTo int) func(context.Context, *client, int) error {
	return func(ctx context.Context, c *client, _ int) error {
		a := ask{size: 5000}
		if upTo > 0 {
			a.work = 5 + c.rand.IntN(upTo)
		}
		id := c.begin()
		head := c.head(http.MethodGet, a, id, "Cookie: session="+strings.Repeat("x", 2000)+"\r\n")
		return then(ctx, c.pieces(ctx, id, 0, head), 300*ms)
	}
}

func then(ctx context.Context, err error, pause time.Duration) error {
	if err == nil {
		rest(ctx, pause)
	}
	return err
}

// read is a large answer that is read slowly: first after some time, then with a
// pause before each part.
func read(size int, first, each time.Duration) func(context.Context, *client, int) error {
	return func(ctx context.Context, c *client, _ int) error {
		id := c.begin()
		if err := c.send(id, c.head(http.MethodGet, ask{size: size}, id, "")); err != nil {
			return err
		}
		rest(ctx, first)
		return then(ctx, c.finish(id, func() { rest(ctx, each) }), 600*ms)
	}
}

// webSocket is one request that never ends, with messages both ways.
func webSocket(ctx context.Context, c *client) error {
	id := c.begin()
	head := c.head(http.MethodGet, ask{work: 10}, id,
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
	if err := c.send(id, head); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil { // it has none
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("status %s, want 101", resp.Status)
	}
	message := make([]byte, 100)
	for ctx.Err() == nil {
		if _, err := c.conn.Write(message); err != nil {
			return err
		}
		if _, err := io.ReadFull(c.in, message); err != nil {
			return err
		}
		rest(ctx, 300*ms)
	}
	return nil
}

func kindNames() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// chooseKinds are those whose names contain one of the words.
func chooseKinds(words string) ([]kind, error) {
	if words == "" {
		return kinds, nil
	}
	var chosen []kind
	for word := range strings.SplitSeq(words, ",") {
		found := false
		for _, k := range kinds {
			if strings.Contains(k.name, word) && !slices.ContainsFunc(chosen, func(c kind) bool { return c.name == k.name }) {
				chosen = append(chosen, k)
			}
			found = found || strings.Contains(k.name, word)
		}
		if !found {
			return nil, fmt.Errorf("no kind of traffic is called like %q: they are %s", word, strings.Join(kindNames(), "; "))
		}
	}
	return chosen, nil
}
