package conntrack

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

// State is what a session is now, in the words of the design.
type State uint8

// The states of a session.
const (
	// Opening is a TCP or SCTP handshake that has only just begun. It is no
	// session yet, but a release should wait a moment for it.
	Opening State = iota + 1
	// Open blocks.
	Open
	// Idle had no packet for the target's IdleAfter. It does not block.
	Idle
	// Lost was open when its entry vanished, and neither side was seen to answer
	// since. It blocks.
	Lost
	// Over has ended.
	Over
)

// String returns the word used in output, metrics and logs.
func (s State) String() string {
	switch s {
	case Opening:
		return "opening"
	case Open:
		return "open"
	case Idle:
		return "idle"
	case Lost:
		return "lost"
	case Over:
		return "over"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MarshalText returns the same word as String.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Side is one end of a session.
type Side uint8

// The sides of a session. The zero value is NoSide.
const (
	NoSide Side = iota
	ClientSide
	ServerSide
)

// String returns client, server or nothing.
func (s Side) String() string {
	switch s {
	case ClientSide:
		return "client"
	case ServerSide:
		return "server"
	case NoSide:
	}
	return ""
}

// MarshalText returns the same word as String.
func (s Side) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Session is one flow at one moment. Flows that the kernel tracks in several
// zones, or twice after a flush, are one session.
type Session struct {
	Protocol Protocol
	// Client is the client as the server sees it, Server the server's own
	// address and served port: reply destination and reply source.
	Client, Server netip.AddrPort
	// Origin is the client's own address, which differs from Client where it is
	// masqueraded. Destination is what the client asked for: a Service address, a
	// node port or the server itself.
	Origin, Destination netip.AddrPort
	// Outbound is true where the asked-for address is the client.
	Outbound bool
	State    State
	// Kernel is the kernel's name for the protocol's state, such as ESTABLISHED,
	// or empty where it keeps none.
	Kernel string
	// ClosedFirst is the side whose FIN was seen first; NoSide before any FIN.
	ClosedFirst Side
	// Offloaded entries are forwarded without the kernel tracking their state.
	Offloaded bool
	// Zones are the conntrack zones that track the flow.
	Zones []uint16
	// FirstSeen is when this reader first saw it. KnownAge is false for sessions
	// older than the reader, which may be of any age.
	FirstSeen time.Time
	KnownAge  bool
	// Quiet is how long there has been no packet at the least, or negative where
	// that is unknown.
	Quiet time.Duration
	// Source says who knows of the session: conntrack, or only the sockets.
	Source Source
	// Probe is true for a kubelet's look at the server, as the [Target] tells them.
	Probe bool
}

// Source says who decided: the conntrack table, or the server's own sockets
// where the data path bypasses conntrack.
type Source uint8

// The sources. The zero value is FromConntrack.
const (
	FromConntrack Source = iota
	FromSockets
)

// String returns conntrack or sockets.
func (s Source) String() string {
	if s == FromSockets {
		return "sockets"
	}
	return "conntrack"
}

// MarshalText returns the same word as String.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON writes the session as one object with durations in seconds;
// quietSeconds and ageSeconds are null where they are unknown.
func (s Session) MarshalJSON() ([]byte, error) {
	type object struct {
		Protocol     Protocol       `json:"protocol"`
		Client       netip.AddrPort `json:"client"`
		Server       netip.AddrPort `json:"server"`
		Origin       netip.AddrPort `json:"origin"`
		Destination  netip.AddrPort `json:"destination"`
		Direction    Direction      `json:"direction"`
		State        State          `json:"state"`
		Kernel       string         `json:"kernel,omitempty"`
		ClosedFirst  Side           `json:"closedFirst,omitempty"`
		Offloaded    bool           `json:"offloaded,omitempty"`
		Zones        []uint16       `json:"zones,omitempty"`
		QuietSeconds *float64       `json:"quietSeconds"`
		Source       Source         `json:"source"`
	}
	o := object{
		Protocol: s.Protocol, Client: s.Client, Server: s.Server,
		Origin: s.Origin, Destination: s.Destination,
		State: s.State, Kernel: s.Kernel, ClosedFirst: s.ClosedFirst,
		Offloaded: s.Offloaded, Zones: s.Zones, Source: s.Source,
	}
	if s.Outbound {
		o.Direction = Outbound
	}
	if s.Quiet >= 0 {
		q := s.Quiet.Seconds()
		o.QuietSeconds = &q
	}
	return json.Marshal(o)
}

// MarshalText returns the same word as String.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }
