package node

import (
	"slices"
	"sync"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// sockets is what the hooks of one pod say of its network namespace, and how they
// are asked for more. It is safe for concurrent use.
//
// Why they have a say. An entry can vanish under a live connection, and a data path
// can bypass conntrack: then an empty table means nothing, and the pod's own
// sockets know. So a zero of conntrack releases only after a look at the sockets
// that began later than that zero and shows none; see looks.
//
// How old a look is. The report goes by the mark that the hook gives back: the look
// began after the answer with that mark had reached it, and so after the moment
// that the mark names. What the hook says of the look's age would be wrong by the
// time that the request was under way, and make an old look prove a new zero. A
// look without a mark of this helper, the first one of a hook, is taken for
// some seconds older than it says and so proves nothing that is recent.
//
// Whose word counts. All hooks of a pod see the same sockets, so the latest look is
// the pod's, whoever took it, and one hook at a time is asked. Old hooks and those
// whose kernel does not tell report nothing and are not waited for. A hook that has
// reported is waited for while it has a request here, and for reporterPatience
// after its last one has left: it is killed with its container, and must not hold
// the others. After that conntrack decides alone, but for what only sockets have
// shown: that lives as far as anybody knows, and holds until the deadline.
//
// A list that is truncated, or that could not be read, never shows that a session
// is gone: conntrack.Watch ends nothing by it.
type sockets struct {
	mu sync.Mutex
	// own are ports that hooks listen on themselves.
	own []uint16
	// listened are ports that some hook has seen a listener on: one that began later
	// does not know of those that are closed by then.
	listened []uint16
	// parked are the requests of reporting hooks that are held, the longest first.
	parked []chan struct{}
	// contact is when a reporting hook was last heard of.
	contact time.Time
}

const (
	// reporterPatience is how long a hook that was answered may take to come back,
	// also one in a container that gets little of the CPU.
	reporterPatience = 5 * time.Second
	// unmarkedSlack is how much older a look without a mark is taken for: longer than
	// a hook's request can be under way.
	unmarkedSlack = 5 * time.Second
)

// hear takes in what a hook says with a request, and returns what it is told by
// while that is held; nil where it does not report. leave has to be called.
func (d *drain) hear(r lifecycle.DrainRequest, arrived time.Time) <-chan struct{} {
	d.sockets.serves(r.Serves)
	if r.Sockets == nil || d.onHostNetwork() {
		return nil // those of the node are not the pod's
	}
	at := arrived.Add(-lifecycle.Seconds(r.Sockets.AgeSeconds) - unmarkedSlack)
	if proven, ok := marks.moment(r.Sockets.Mark, arrived); ok {
		at = proven
	}
	d.sockets.hears(r.Sockets.Listening)
	look := d.sockets.park()
	d.report(conntrack.SocketReport{
		At:        at,
		Sockets:   fromWire(r.Sockets.Inbound),
		Local:     fromWire(r.Sockets.Other),
		Opening:   fromWire(r.Sockets.Opening),
		Listening: r.Sockets.Listening,
		Truncated: r.Sockets.Truncated,
	})
	return look
}

func (d *drain) onHostNetwork() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pod.Spec.HostNetwork
}

func fromWire(all []lifecycle.Socket) []conntrack.Socket {
	sockets := make([]conntrack.Socket, 0, len(all))
	for _, s := range all {
		sockets = append(sockets, conntrack.Socket{Local: s.Local, Peer: s.Peer})
	}
	return sockets
}

func (s *sockets) serves(ports []uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range ports {
		// The ports of one hook: whoever names thousands means something else.
		if !slices.Contains(s.own, p) && len(s.own) < maxOwnPorts {
			s.own = append(s.own, p)
		}
	}
}

const maxOwnPorts = 16

func (s *sockets) hears(listening []uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range listening {
		if !slices.Contains(s.listened, p) && len(s.listened) < maxListened {
			s.listened = append(s.listened, p)
		}
	}
}

const maxListened = 256

// serverPort says whether the port is one of a server of the pod, where nothing names
// its ports.
func (s *sockets) serverPort(port uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.listened, port)
}

// ownPorts are those that hooks listen on.
func (s *sockets) ownPorts() []uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.own)
}

// park notes that a reporting hook is here.
func (s *sockets) park() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	look := make(chan struct{}, 1)
	s.parked = append(s.parked, look)
	s.contact = time.Now()
	return look
}

// leave notes that it is answered or gone.
func (s *sockets) leave(look <-chan struct{}) {
	if look == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contact = time.Now()
	s.parked = slices.DeleteFunc(s.parked, func(c chan struct{}) bool { return c == look })
}

// ask makes the hook that has waited for longest take a look.
func (s *sockets) ask() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parked) == 0 {
		return // the next one brings a look
	}
	s.parked[0] <- struct{}{} // it has room: a hook is asked once
	s.parked = s.parked[1:]
}

// reporting says whether a look can be had.
func (s *sockets) reporting(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.parked) > 0 || !s.contact.IsZero() && now.Sub(s.contact) < reporterPatience
}

// excuse gives a hook that has reported its whole patience anew.
func (s *sockets) excuse(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.contact.IsZero() {
		s.contact = now
	}
}

// ready completes a report by what the helper knows of the pod: which of its
// sockets are sessions, and on which ports those count that conntrack does not know.
func (v *vigil) ready(r conntrack.SocketReport) conntrack.SocketReport {
	// An application that closes its listener goes on with what it has accepted.
	var rest []conntrack.Socket
	for _, s := range r.Local {
		counts := slices.Contains(v.target.Ports, s.Local.Port()) || len(v.target.Ports) == 0 && v.sockets.serverPort(s.Local.Port())
		if counts && !slices.Contains(v.target.Addresses, s.Peer.Addr()) {
			r.Sockets = append(r.Sockets, s)
		} else {
			rest = append(rest, s)
		}
	}
	r.Local = rest
	r.Own = v.sockets.ownPorts()
	r.BlindPorts = blindPorts(r.Sockets, v.target.Ports, sideways(v.current(), v.target.Ports))
	return r
}

// blindPorts are the local ports on which a socket counts that has no entry: all
// but those of the pod's other uses. None means every one.
func blindPorts(sockets []conntrack.Socket, served, others []uint16) []uint16 {
	if len(others) == 0 {
		return nil
	}
	ports := slices.Clone(served)
	seen := make(map[uint16]bool)
	for _, p := range slices.Concat(others, served) {
		seen[p] = true
	}
	for _, s := range sockets {
		if p := s.Local.Port(); !seen[p] {
			seen[p] = true
			ports = append(ports, p)
		}
	}
	return ports
}
