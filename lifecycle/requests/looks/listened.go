package looks

import (
	"net/netip"
	"slices"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
)

// ends are the addresses of one connection.
type ends struct{ local, peer netip.AddrPort }

// listen notes which ports are listened on. While nobody waits it forgets those where
// that is over, and with it all connections that were there: the kernel may give such a
// port to a connection that this namespace begins, which is no session of a server.
func (l *Looker) listen(look sockdiag.Look, waited bool) {
	for _, port := range look.Listening {
		if !slices.Contains(l.listened, port) {
			l.listened = append(slices.Clip(l.listened), port)
		}
	}
	if l.stopped == nil {
		l.stopped = make(map[uint16]map[ends]struct{})
	}
	var over []uint16
	for _, port := range l.listened {
		if _, listening := slices.BinarySearch(look.Listening, port); listening {
			delete(l.stopped, port)
			continue
		}
		before, known := l.stopped[port]
		now := make(map[ends]struct{})
		for i := range look.Sockets {
			k := &look.Sockets[i]
			// What came since the look before was accepted, as far as anybody knows.
			if k.Local.Port() != port || !k.Live() {
				continue
			}
			c := ends{k.Local, k.Peer}
			if _, was := before[c]; was || !known {
				now[c] = struct{}{}
			}
		}
		l.stopped[port] = now
		if len(now) == 0 && !waited {
			over = append(over, port)
		}
	}
	if len(over) == 0 {
		return
	}
	var kept []uint16 // looks that were taken have the old ones
	for _, port := range l.listened {
		if slices.Contains(over, port) {
			delete(l.stopped, port)
			continue
		}
		kept = append(kept, port)
	}
	l.listened = kept
}
