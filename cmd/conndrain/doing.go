package main

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle/requests"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// doing says what connections are doing, by both of their ends as the server sees them;
// by the client's alone where it has one connection only. It is nil where the server's
// sockets are not here.
type doing map[ends]requests.Class

// ends are those of one connection.
type ends struct{ client, server netip.AddrPort }

// of is the word for a session, or empty where nothing is known of it.
func (d doing) of(s *conntrack.Session) string {
	class, known := d[ends{s.Client, s.Server}]
	if !known {
		class, known = d[ends{client: s.Client}]
	}
	if !known || s.Protocol != conntrack.TCP || s.Outbound {
		return ""
	}
	return class.String()
}

// seesSockets says whether this network namespace is the server's.
func (f *targetFlags) seesSockets() bool {
	t := f.target
	own, _ := split(t.Addresses)
	tcp := len(t.Protocols) == 0 || slices.Contains(t.Protocols, conntrack.TCP)
	return len(own) > 0 && tcp && t.Direction != conntrack.Outbound
}

func doingOf(s looks.Sight) doing {
	if s.Blind() != "" {
		return nil
	}
	d := make(doing, 2*len(s.Counted))
	connections := make(map[netip.AddrPort]int, len(s.Counted))
	for i := range s.Counted {
		c := &s.Counted[i]
		d[ends{c.Peer, c.Local}], d[ends{client: c.Peer}] = c.Wide, c.Wide
		connections[c.Peer]++
	}
	for client, n := range connections {
		if n > 1 {
			delete(d, ends{client: client})
		}
	}
	return d
}

// socketLooker looks at the target's own sockets.
func (f *targetFlags) socketLooker() looks.Looker {
	return looks.Looker{Scope: sockdiag.Scope{Addresses: f.target.Addresses}}
}

// doingNow takes one look, which knows what is in flight and cannot know pauses.
func (f *targetFlags) doingNow(ctx context.Context) doing {
	if !f.seesSockets() {
		return nil
	}
	l := f.socketLooker()
	return doingOf(l.Look(ctx))
}

// observer looks on, so that it learns what a pause is. The zero observer sees nothing.
type observer struct {
	mu   sync.Mutex
	last doing
}

// observe looks until ctx ends. It blocks.
func (o *observer) observe(ctx context.Context, l looks.Looker) {
	eyes := looks.NewEyes(l, false)
	defer eyes.Begin(func(s looks.Sight) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last = doingOf(s)
	})()
	eyes.Run(ctx)
}

func (o *observer) now() doing {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}
