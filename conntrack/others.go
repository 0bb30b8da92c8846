package conntrack

import (
	"net/netip"
	"time"
)

// Others returns the clients of the TCP connections to the target's addresses that the
// target does not ask for, such as those to another port, as far as conntrack has
// entries of them. A socket of one of them is no session of the target, whatever port
// it is on; but one client's end can have a session beside it. It does not block. The
// order means nothing.
func (w *Watch) Others() []netip.AddrPort {
	w.reader.mu.Lock()
	defer w.reader.mu.Unlock()
	defer w.rest(time.Now())
	var others []netip.AddrPort
	for _, h := range w.hosts {
		for _, k := range h.sessions {
			if k.proto == TCP && k.server(w.target.Ports) && !w.relevant(k, true) {
				others = append(others, k.remote)
			}
		}
	}
	return others
}

// rest keeps the next change from being announced before countFactor times what the
// look since began has taken. The reader's mutex is held.
func (w *Watch) rest(began time.Time) {
	now := time.Now()
	w.restUntil = later(w.restUntil, now.Add(countFactor*now.Sub(began)))
}
