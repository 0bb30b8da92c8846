package sockdiag

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Look is what the TCP sockets of one network namespace were at one moment.
//
// A socket that is born or dies during the look may be in it or not, and one
// whose neighbour in the kernel's hash chain dies just then can be missed. So
// two looks are needed to conclude that a socket is gone.
type Look struct {
	// At is when the look began.
	At time.Time
	// Source is how the kernel was asked. Refusal is why it was not by sock_diag.
	Source  Source
	Refusal error
	// Sockets are those in ESTABLISHED, CLOSE_WAIT, FIN_WAIT1, CLOSING, LAST_ACK and
	// SYN_RECV, in no order.
	Sockets []Socket
	// Traffic is that of the socket at the same place of Sockets. It is empty unless
	// the look was one by TakeTraffic.
	Traffic []Traffic
	// Listening are the ports that some socket listens on, sorted, each once.
	Listening []uint16
	// Own are the addresses of the namespace's interfaces, sorted, each once.
	Own []netip.Addr
}

// Source is how a kernel tells of its sockets.
type Source uint8

const (
	// SockDiag is netlink, which tells all that there is in one piece.
	SockDiag Source = iota
	// ProcNet is /proc/net/tcp and tcp6, which know no traffic.
	ProcNet
)

// String is for a person.
func (s Source) String() string {
	if s == ProcNet {
		return "/proc/net/tcp"
	}
	return "sock_diag"
}

// Scope narrows what Counted counts. The zero value counts the sessions of all
// servers of the namespace.
type Scope struct {
	// Ports are the local ports that count, whether something still listens there
	// or not. Empty means every port that some socket listens on. Name ports only
	// where nothing redirects them: behind a proxy of a service mesh the client's
	// socket has the proxy's port.
	Ports []uint16
	// Listened are ports that some socket listened on in an earlier look: a
	// server that has stopped to listen goes on with what it has accepted. It has
	// no meaning where Ports is set.
	Listened []uint16
	// Addresses are the local addresses that count. Empty means every address.
	Addresses []netip.Addr
	// Except are local ports of the caller itself, such as that of a connection
	// by which it asks for the end.
	Except []uint16
}

// Counted returns the sockets of the look that are live sessions of a server
// here, in the look's order: ESTABLISHED, CLOSE_WAIT, and FIN_WAIT1, CLOSING and
// LAST_ACK while more than the FIN is unacknowledged; on a port of the scope; with
// a peer that is neither loopback nor an address of this namespace. The look is
// not changed.
func (l Look) Counted(s Scope) []Socket { return l.of(l.scoped(s, false)) }

// CountedAt returns the places in Sockets, and in Traffic, of those that Counted
// returns.
func (l Look) CountedAt(s Scope) []int { return l.scoped(s, false) }

// Local returns the sockets that Counted leaves out only for their peer, which is
// this namespace itself. They show that a session lives that is known in another
// way.
func (l Look) Local(s Scope) []Socket { return l.of(l.scoped(s, true)) }

// of are the sockets at these places.
func (l Look) of(places []int) []Socket {
	var sockets []Socket
	for _, i := range places {
		sockets = append(sockets, l.Sockets[i])
	}
	return sockets
}

// Live returns all sockets of the look in which a connection can still lose data,
// whoever began it and whatever its port and peer are.
func (l Look) Live() []Socket {
	var live []Socket
	for _, k := range l.Sockets {
		if k.Live() {
			live = append(live, k)
		}
	}
	return live
}

// Opening returns those of which the server has no socket yet: of a client that is
// connected already, where the listener waits for its first data or has no room.
func (l Look) Opening() []Socket {
	var opening []Socket
	for _, k := range l.Sockets {
		if k.State == SynRecv {
			opening = append(opening, k)
		}
	}
	return opening
}

func (l Look) scoped(s Scope, own bool) []int {
	addresses := make([]netip.Addr, len(s.Addresses))
	for i, a := range s.Addresses {
		addresses[i] = plain(a)
	}
	serves := func(port uint16) bool {
		if len(s.Ports) > 0 {
			return slices.Contains(s.Ports, port)
		}
		_, listening := slices.BinarySearch(l.Listening, port)
		return listening || slices.Contains(s.Listened, port)
	}
	var counted []int
	for i := range l.Sockets {
		k := &l.Sockets[i]
		if !k.Live() || !serves(k.Local.Port()) || slices.Contains(s.Except, k.Local.Port()) {
			continue
		}
		if len(addresses) > 0 && !slices.Contains(addresses, k.Local.Addr()) {
			continue
		}
		if l.isOwn(k.Peer.Addr()) != own {
			continue
		}
		counted = append(counted, i)
	}
	return counted
}

// isOwn says whether the address is this namespace itself.
func (l Look) isOwn(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	_, own := slices.BinarySearchFunc(l.Own, a, netip.Addr.Compare)
	return own
}

// sortUnique sorts in place and drops what is there twice.
func sortUnique[T any](s []T, compare func(a, b T) int) []T {
	slices.SortFunc(s, compare)
	return slices.CompactFunc(s, func(a, b T) bool { return compare(a, b) == 0 })
}

// add files the socket where it belongs.
func (l *Look) add(a answer) {
	if a.State == Listen {
		l.Listening = append(l.Listening, a.Local.Port())
		return
	}
	l.Sockets = append(l.Sockets, a.Socket)
	if a.asked {
		l.Traffic = append(l.Traffic, a.traffic)
	}
}

// finish brings the look's lists into the order that they promise.
func (l *Look) finish(own []netip.Addr) {
	for _, a := range own {
		l.Own = append(l.Own, plain(a))
	}
	l.Own = sortUnique(l.Own, netip.Addr.Compare)
	l.Listening = sortUnique(l.Listening, cmp.Compare[uint16])
}

// plain is the form in which the kernel's addresses are decoded.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
