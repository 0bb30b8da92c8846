//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// kind is a kind of traffic.
type kind struct {
	name string
	// turn is one exchange and the pause after it.
	turn func(ctx context.Context, c *client, turn int) error
	// servers are those that can do it; none means all.
	servers []string
	// opaque kinds cannot be seen into: they are printed, and nothing is promised.
	opaque bool
}

func (k kind) on(server string) bool {
	return len(k.servers) == 0 || slices.Contains(k.servers, server)
}

const ms = time.Millisecond

// kinds are those of the tables, in their order.
var kinds = []kind{
	{name: "short every 200 ms", turn: exchange("size=300", 200*ms)},
	{name: "slow 1.5 s, think 0", turn: exchange("size=300&work=1500", 0)},
	{name: "slow 1.5 s, think 50 ms", turn: exchange("size=300&work=1500", 50*ms)},
	{name: "slow 1.5 s, think 200 ms", turn: exchange("size=300&work=1500", 200*ms)},
	{name: "fast x5 then slow, think 0", turn: func(ctx context.Context, c *client, turn int) error {
		if turn%6 == 5 {
			return exchange("size=300&work=1500", 0)(ctx, c, turn)
		}
		return exchange("size=300", 0)(ctx, c, turn)
	}},
	{name: "fast and slow mixed, pauses", turn: func(ctx context.Context, c *client, turn int) error {
		work, pause := 0, time.Duration(c.rand.IntN(400))*ms
		if c.rand.IntN(3) == 0 {
			work = 200 + c.rand.IntN(800)
		}
		return exchange(fmt.Sprintf("size=300&work=%d", work), pause)(ctx, c, turn)
	}},
	{name: "random work and think 0-300 ms", turn: func(ctx context.Context, c *client, turn int) error {
		return exchange(fmt.Sprintf("size=300&work=%d", c.rand.IntN(300)), time.Duration(c.rand.IntN(300))*ms)(ctx, c, turn)
	}},
	{name: "random sizes", turn: func(ctx context.Context, c *client, turn int) error {
		return exchange(fmt.Sprintf("size=%d&work=%d", 1+c.rand.IntN(20000), c.rand.IntN(200)), 300*ms)(ctx, c, turn)
	}},
	{name: "request in two segments", turn: func(ctx context.Context, c *client, _ int) error {
		return then(ctx, c.post(ctx, "size=300", 2000, 300*ms), 300*ms)
	}},
	{name: "upload", turn: func(ctx context.Context, c *client, _ int) error {
		return then(ctx, c.post(ctx, "size=300", 4<<20, 20*ms), 300*ms)
	}},
	{name: "bulk, slow reader", turn: func(ctx context.Context, c *client, _ int) error {
		c.truth.begin(c.self)
		if err := c.send("GET /?size=8388608 HTTP/1.1\r\nHost: bench\r\n\r\n"); err != nil {
			return err
		}
		return then(ctx, c.finish(func() { rest(ctx, 20*ms) }), 300*ms)
	}},
	{name: "long poll", turn: exchange("size=300&work=5000", 0)},
	{name: "chunks every 300 ms", turn: exchange("size=300&parts=6&pause=300", 300*ms)},
	{name: "answer in two writes", turn: func(ctx context.Context, c *client, turn int) error {
		return exchange(fmt.Sprintf("size=300&parts=2&pause=%d", 100+c.rand.IntN(400)), 300*ms)(ctx, c, turn)
	}},
	{name: "headers early, 1 s", turn: exchange("size=3000&early=1000", 300*ms)},
	{name: "100-continue", turn: func(ctx context.Context, c *client, _ int) error {
		return then(ctx, c.expect(ctx, "size=300", 1000, 1500*ms), 300*ms)
	}},
	{name: "first stream after short answers", opaque: false, turn: func(ctx context.Context, c *client, turn int) error {
		if turn%40 == 39 {
			return exchange("size=300&parts=5&pause=1000", 200*ms)(ctx, c, turn)
		}
		return exchange("size=300", 200*ms)(ctx, c, turn)
	}},
	{name: "short, at 10 ms", turn: exchange("size=300", 10*ms)},
}

// exchange is a request and a pause after its answer.
func exchange(query string, pause time.Duration) func(context.Context, *client, int) error {
	return func(ctx context.Context, c *client, _ int) error { return then(ctx, c.get(query), pause) }
}

func then(ctx context.Context, err error, pause time.Duration) error {
	if err == nil {
		rest(ctx, pause)
	}
	return err
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
			if strings.Contains(k.name, word) {
				chosen, found = append(chosen, k), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no kind of traffic is called like %q: they are %s", word, strings.Join(kindNames(), "; "))
		}
	}
	return chosen, nil
}
