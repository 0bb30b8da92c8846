package lifecycle

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
)

// SocketList is one look of a hook at the TCP sockets of its pod's network
// namespace, as it goes over the wire.
type SocketList struct {
	// AgeSeconds is how long before the request was made the look began.
	AgeSeconds float64
	// Mark is that of the last answer which the hook had when the look began. It
	// proves to the helper that the look is younger than that answer, however long
	// the request was under way.
	Mark string
	// Listening are the ports that somebody listens on, or did during the wait: that
	// nobody has a connection there means that there is none.
	Listening []uint16
	// Inbound are the live connections from elsewhere to a port that somebody
	// listens on: sessions of the pod, if it serves that port.
	Inbound []Socket
	// Other are the remaining live ones: to the pod's own addresses, on ports that
	// nobody listens on any more, or the pod's own outbound ones. They only show
	// that what the helper knows otherwise still lives. Those with loopback are left
	// out, because the node cannot know of them.
	Other []Socket
	// Opening are those that a listener keeps without a socket yet. They are no
	// sessions; what the helper knows otherwise is not ended by the want of a socket.
	Opening []Socket
	// Truncated says that there were more than these, or that some could not be
	// read: the list then never proves that something is gone.
	Truncated bool
}

// Socket is one TCP connection of a pod.
type Socket struct {
	Local, Peer netip.AddrPort
}

// maxListening is how many ports are told of; the wait is only longer without the
// rest.
const maxListening = 2048

// socketRoom is how much of a request its sockets may fill: some 8,000 of IPv4.
const socketRoom = MaxRequestBytes - 32<<10

// NewSocketList lists as many sockets as a request has room for, inbound ones
// first, and is truncated if that is not all of them.
func NewSocketList(listening []uint16, inbound, other, opening []Socket) SocketList {
	l := SocketList{Listening: listening[:min(len(listening), maxListening)]}
	room := socketRoom - len("65535,")*len(l.Listening)
	fill := func(from []Socket) []Socket {
		for i, s := range from {
			if room -= len(s.text()) + len(`"",`); room < 0 {
				l.Truncated = true
				return from[:i]
			}
		}
		return from
	}
	l.Inbound = fill(inbound)
	l.Other = fill(other)
	l.Opening = fill(opening)
	return l
}

// text is the socket without its local address.
func (s Socket) text() string {
	return strconv.Itoa(int(s.Local.Port())) + " " + s.Peer.String()
}

// wireList is a SocketList in JSON: by local address, with each socket as its
// local port, a space and its peer.
type wireList struct {
	AgeSeconds float64             `json:"ageSeconds,omitempty"`
	Mark       string              `json:"mark,omitempty"`
	Listening  []uint16            `json:"listening,omitempty"`
	Inbound    map[string][]string `json:"inbound,omitempty"`
	Other      map[string][]string `json:"other,omitempty"`
	Opening    map[string][]string `json:"opening,omitempty"`
	Truncated  bool                `json:"truncated,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (l SocketList) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireList{l.AgeSeconds, l.Mark, l.Listening, byAddress(l.Inbound), byAddress(l.Other), byAddress(l.Opening), l.Truncated})
}

// UnmarshalJSON implements json.Unmarshaler. It never fails for what it cannot
// read, which may be a later release's: the list is then truncated, and proves
// nothing.
func (l *SocketList) UnmarshalJSON(b []byte) error {
	var w wireList
	if err := json.Unmarshal(b, &w); err != nil {
		w = wireList{Truncated: true} // for the caller the rest of the request counts
	}
	*l = SocketList{AgeSeconds: w.AgeSeconds, Mark: w.Mark, Listening: w.Listening, Truncated: w.Truncated}
	l.Inbound = l.read(w.Inbound)
	l.Other = l.read(w.Other)
	l.Opening = l.read(w.Opening)
	return nil
}

func byAddress(sockets []Socket) map[string][]string {
	all := make(map[string][]string)
	for _, s := range sockets {
		local := s.Local.Addr().String()
		all[local] = append(all[local], s.text())
	}
	return all
}

func (l *SocketList) read(all map[string][]string) []Socket {
	var sockets []Socket
	for address, texts := range all {
		local, err := netip.ParseAddr(address)
		if err != nil {
			l.Truncated = true
			continue
		}
		for _, text := range texts {
			port, peer, _ := strings.Cut(text, " ")
			n, portErr := strconv.ParseUint(port, 10, 16)
			p, peerErr := netip.ParseAddrPort(peer)
			if portErr != nil || peerErr != nil {
				l.Truncated = true
				continue
			}
			sockets = append(sockets, Socket{Local: netip.AddrPortFrom(local, uint16(n)), Peer: p})
		}
	}
	return sockets
}
