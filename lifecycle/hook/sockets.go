package hook

import (
	"net/netip"
	"slices"
	"time"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// list is a look for the helper. own are ports that the hook itself listens on, mark
// is that of the last answer which was there when the look began.
func list(s looks.Sight, own []uint16, mark string) *lifecycle.SocketList {
	counted := make(map[sockdiag.Socket]bool, len(s.Counted))
	var in, other, opening []lifecycle.Socket
	for i := range s.Counted {
		k := s.Counted[i].Socket
		counted[k] = true
		in = append(in, lifecycle.Socket{Local: k.Local, Peer: k.Peer})
	}
	for _, k := range s.Live() {
		// The node knows nothing of loopback.
		if counted[k] || k.Peer.Addr().IsLoopback() || slices.Contains(own, k.Local.Port()) {
			continue
		}
		other = append(other, lifecycle.Socket{Local: k.Local, Peer: k.Peer})
	}
	for _, k := range s.Opening() {
		if !k.Peer.Addr().IsLoopback() && !slices.Contains(own, k.Local.Port()) {
			opening = append(opening, lifecycle.Socket{Local: k.Local, Peer: k.Peer})
		}
	}
	listening := s.Listened
	if nested(s.Own) {
		listening = nil
	}
	l := lifecycle.NewSocketList(listening, in, other, opening)
	l.Mark, l.AgeSeconds = mark, time.Since(s.At).Seconds()
	return &l
}

// nested says that the namespace has more than one address of a family, so that other
// namespaces may be behind it: a port that something listens on here may be led there,
// such as a published one of a Docker inside of the pod.
func nested(own []netip.Addr) bool {
	var four, six int
	for _, a := range own {
		switch {
		case a.IsLoopback() || a.IsLinkLocalUnicast():
		case a.Is4():
			four++
		default:
			six++
		}
	}
	return four > 1 || six > 1
}

// sessions counts the live ones on the ports, or on all that somebody listens on.
// known is false where the sockets do not tell: that is not none.
func sessions(s looks.Sight, ports, own []uint16) (open int, known bool) {
	switch {
	case s.Err != nil:
		return 0, false
	case len(ports) == 0:
		return len(s.Counted), true
	}
	return len(s.CountedAt(sockdiag.Scope{Ports: ports, Except: own})), true
}

// isNodes says whether a look is one at the node's own sockets: no pod but one with
// the node's network has the node's address.
func isNodes(s looks.Sight, node netip.Addr) bool {
	return node.IsValid() && !node.IsLoopback() && slices.Contains(s.Own, node)
}
