package conntrack

import (
	"net/netip"
	"slices"
	"time"
)

// Socket is an established connection of the server's own network namespace, as
// package sockdiag counts them.
type Socket struct {
	Local, Peer netip.AddrPort
}

// plain is the socket with addresses as conntrack has them.
func (s Socket) plain() Socket {
	plain := func(a netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
	}
	return Socket{Local: plain(s.Local), Peer: plain(s.Peer)}
}

// SocketReport is one look at the server's own sockets.
type SocketReport struct {
	// At is when the look began.
	At time.Time
	// Sockets are the TCP connections that count: open, to a port that something
	// listens on, from elsewhere.
	Sockets []Socket
	// Local are such connections with this network namespace's own addresses. They
	// tell that a session that conntrack knows lives, and are none themselves.
	Local []Socket
	// Opening are those that a listener has not made a socket of yet, though the client
	// may be connected: it waits for data, or has no room. They are no sessions, and
	// do not hold one open; but what conntrack knows is not ended by the want of a socket.
	Opening []Socket
	// Listening are the ports that some socket listens on. A session that never had
	// a socket is ended by the want of one only where a socket listens for it:
	// elsewhere its server may be in a namespace that the look does not reach, such
	// as a virtual machine behind the pod's address.
	Listening []uint16
	// Truncated means that there were more: the report then never proves that a
	// session is gone.
	Truncated bool
	// BlindPorts restricts which sockets count that conntrack knows nothing of, by
	// their local port. Empty means every port. A socket that has an entry is
	// never judged by its local port, because a mesh redirects.
	BlindPorts []uint16
	// Own are ports that the reporter itself listens on: what comes to them is no
	// session of the target, neither as a socket nor as an entry, from then on. They
	// are taken in from an old report too.
	Own []uint16
}

// blindAfter is how far apart two reports have to be that both show a socket
// without an entry, before it is believed that conntrack does not see it.
const blindAfter = time.Second

// maxBlind is how many sockets without an entry are remembered: more than one report can
// name, because one that is truncated ends none of those before it. Those beyond it are
// not known one by one, but they hold: until a report tells all again, a zero stays
// unconfirmed. So whoever names new ones without end makes nothing grow, and brings about
// nothing but that its own server is held to its deadline.
const maxBlind = 20000

// report is what a watch keeps of the reports that it was given.
type report struct {
	at time.Time
	// first is when the first of them began.
	first time.Time
	// blind are sockets without an entry, by when they were first reported so.
	blind map[Socket]time.Time
	// full says that there are others, for which there was no room.
	full bool
	// own are all ports that were ever reported as such.
	own []uint16
	// blindSeen is set for good once a socket proved to be blind.
	blindSeen bool
	// truncated says that the latest did not tell all.
	truncated bool
}

// Report takes in a look at the server's own sockets. The sockets are joined with
// the entries by the client's address and port. A session whose socket lives is
// open even when its entry is over; a lost session without a socket is over; and a
// socket that no entry belongs to in two reports at least a second apart is a
// session that conntrack does not see.
func (w *Watch) Report(r SocketReport) {
	w.reader.mu.Lock()
	defer w.reader.mu.Unlock()
	now := time.Now()
	for _, port := range r.Own {
		if !slices.Contains(w.report.own, port) {
			w.report.own = append(w.report.own, port)
		}
	}
	if w.closed || !r.At.After(w.report.at) {
		return
	}
	previous := w.report.at
	w.report.at, w.report.truncated = r.At, r.Truncated
	if w.report.first.IsZero() {
		w.report.first = r.At
	}
	byPeer := w.byPeer()
	blindPorts, listening := setOf(r.BlindPorts), setOf(r.Listening)
	blind := make(map[Socket]time.Time)
	full := r.Truncated && w.report.full
	room := maxBlind
	if r.Truncated {
		room -= len(w.report.blind) // they stay
	}
	seen := make(map[*kept]bool)
	for _, s := range r.Local {
		if k := w.belongs(s.plain(), byPeer[s.plain().Peer]); k != nil {
			seen[k] = true
		}
	}
	for _, s := range r.Sockets {
		s = s.plain()
		if known := byPeer[s.Peer]; len(known) > 0 {
			if k := w.belongs(s, known); k != nil {
				seen[k] = true
			}
			continue
		}
		if slices.Contains(w.report.own, s.Local.Port()) {
			continue
		}
		if len(blindPorts) > 0 && !blindPorts[s.Local.Port()] {
			continue
		}
		first, again := w.report.blind[s]
		if _, twice := blind[s]; !twice && (!again || !r.Truncated) {
			if room <= 0 {
				full = true
				continue
			}
			room--
		}
		switch {
		case again && w.synced():
		case w.untracked:
			first = r.At.Add(-blindAfter) // nothing has an entry here
		default:
			first = r.At // without the whole table nothing says that it has no entry
		}
		blind[s] = first
		if r.At.Sub(first) >= blindAfter {
			w.report.blindSeen = true
			if r.At.After(w.report.first) && !w.probeSocket(s) && !w.report.believed(s, previous) {
				w.created++ // it came while we watched
				w.lastNew = later(w.lastNew, r.At)
			}
		}
	}
	opening := make(map[*kept]bool)
	for _, s := range r.Opening {
		if k := w.belongs(s.plain(), byPeer[s.plain().Peer]); k != nil {
			opening[k] = true
		}
	}
	if r.Truncated {
		for s, first := range w.report.blind {
			if _, again := blind[s]; !again {
				blind[s] = first
			}
		}
	}
	w.report.blind, w.report.full = blind, full
	for _, known := range byPeer {
		for _, k := range known {
			// What nobody asks for keeps its entry, or its socket would look like one
			// that has none.
			if opening[k] && !seen[k] {
				k.without = time.Time{}
			} else if w.relevant(k, true) {
				w.joined(k, seen[k], listening, r, now)
			}
		}
	}
	w.notify()
}

// Unreported says that nobody reports the server's sockets any more. Sessions that
// have entries are then judged by them alone again, because nobody is left to tell
// that their sockets have gone. What only sockets have shown stays: nothing tells
// its end.
func (w *Watch) Unreported() {
	w.reader.mu.Lock()
	defer w.reader.mu.Unlock()
	for _, h := range w.hosts {
		for _, k := range h.sessions {
			k.socket, k.without = time.Time{}, time.Time{}
		}
	}
	w.notify()
}

// byPeer are the sessions that sockets can belong to, by the client's end.
func (w *Watch) byPeer() map[netip.AddrPort][]*kept {
	byPeer := make(map[netip.AddrPort][]*kept)
	for _, h := range w.hosts {
		for _, k := range h.sessions {
			if k.proto == TCP && k.server(w.target.Ports) {
				byPeer[k.remote] = append(byPeer[k.remote], k)
			}
		}
	}
	return byPeer
}

// explain joins sockets of the last report with entries that came to be known after
// it, such as those of the first snapshot: they are not blind, and nobody may be
// left to report them again.
func (w *Watch) explain() {
	if !w.report.pending() {
		return
	}
	byPeer := w.byPeer()
	for s, first := range w.report.blind {
		known := byPeer[s.Peer]
		if len(known) == 0 || w.report.at.Sub(first) >= blindAfter {
			continue
		}
		delete(w.report.blind, s)
		if k := w.belongs(s, known); k != nil {
			k.socket, k.without, k.hadSocket = w.report.at, time.Time{}, true
		}
	}
}

// belongs returns the session among those with the socket's peer that the socket
// is of, or nil where it is of one that nobody asks for. One client port can be
// connected to several ports of the pod at once.
func (w *Watch) belongs(s Socket, known []*kept) *kept {
	var served *kept
	for _, k := range known {
		if !w.relevant(k, true) {
			if k.local == s.Local {
				return nil
			}
			continue
		}
		if served == nil || k.local == s.Local {
			served = k
		}
	}
	return served
}

// joined notes whether a session has a socket.
func (w *Watch) joined(k *kept, has bool, listening map[uint16]bool, r SocketReport, now time.Time) {
	switch {
	case has:
		k.socket, k.without, k.hadSocket = r.At, time.Time{}, true
		return
	case r.Truncated:
		return
	}
	k.socket = time.Time{}
	if !k.hadSocket && !listening[k.local.Port()] {
		return
	}
	if k.without.IsZero() || k.packetSince(k.without) {
		k.without = r.At
	}
	h := w.hostOf(k)
	if h == nil {
		return
	}
	for _, f := range slices.Clone(k.flows) {
		// Its entry vanished or is the echo of one that did, and when we looked
		// afterwards no socket was left.
		var lost bool
		switch {
		case !f.gone.IsZero():
			lost = f.gone.Before(r.At)
		case f.unanswered():
			lost = f.firstSeen.Before(r.At)
		default:
			// Two whole looks without a socket, and no packet between: what its entry
			// still says is the echo of an end that nobody tracked.
			lost = f.ended() && !f.mayRevive() || r.At.Sub(k.without) >= blindAfter
		}
		if lost {
			h.drop(f)
			h.ended = now
		}
	}
}

// probeSocket says whether the socket is that of a kubelet's look at the pod, as probe
// does of an entry.
func (w *Watch) probeSocket(s Socket) bool {
	t := &w.target
	return slices.Contains(t.ProbedPorts, s.Local.Port()) && slices.Contains(t.ProbedFrom, s.Peer.Addr())
}

// setOf makes a set of ports: a report is of any length.
func setOf(ports []uint16) map[uint16]bool {
	set := make(map[uint16]bool, len(ports))
	for _, p := range ports {
		set[p] = true
	}
	return set
}

func (w *Watch) hostOf(k *kept) *host {
	for _, h := range w.hosts {
		if h.sessions[k.pairKey] == k {
			return h
		}
	}
	return nil
}

func (w *Watch) synced() bool {
	for _, h := range w.hosts {
		if !h.synced {
			return false
		}
	}
	return true
}

// believed says whether the socket counted as blind at an earlier report.
func (r *report) believed(s Socket, at time.Time) bool {
	first, known := r.blind[s]
	return known && (at.Sub(first) >= blindAfter || !first.After(r.first))
}

// countBlind is how many sockets are known to be invisible to conntrack.
func (r *report) countBlind() int {
	n := 0
	for _, first := range r.blind {
		if r.at.Sub(first) >= blindAfter {
			n++
		}
	}
	return n
}

// pending says whether a socket may still turn out to be blind.
func (r *report) pending() bool { return r.full || len(r.blind) > r.countBlind() }

func (r *report) blindSessions() []Session {
	var sessions []Session
	for s, first := range r.blind {
		if r.at.Sub(first) < blindAfter {
			continue
		}
		sessions = append(sessions, Session{
			Protocol: TCP, State: Open, Source: FromSockets,
			Client: s.Peer, Origin: s.Peer, Server: s.Local, Destination: s.Local,
			FirstSeen: first, Quiet: -1,
		})
	}
	return sessions
}
