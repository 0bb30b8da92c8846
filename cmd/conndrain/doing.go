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

// doing says what connections are doing, by their client as the server sees it. It is
// nil where the server's sockets are not here.
type doing map[netip.AddrPort]requests.Class

// of is the word for a session, or empty where nothing is known of it.
func (d doing) of(s *conntrack.Session) string {
	class, known := d[s.Client]
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
	d := make(doing, len(s.Counted))
	for i := range s.Counted {
		d[s.Counted[i].Peer] = s.Counted[i].Wide
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
