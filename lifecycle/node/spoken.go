package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// seenInto are the protocols of which a pod's sockets tell a request from a pause. In
// https something else can be spoken; its owner asked for requests all the same.
var seenInto = []string{"http", "https", "http1", "http/1.1"}

// unseen are the first words of a port's name by which meshes, too, know that something
// is spoken into which no look sees.
var unseen = []string{"grpc", "http2", "h2c", "ws", "wss", "mongo", "mysql", "postgres", "postgresql", "redis"}

// speaks says what is spoken on the port that no look sees into, or nothing. Sure is
// true where its Service says it by appProtocol, and not by a name.
func (p port) speaks() (what string, sure bool) {
	if p.protocol != "" {
		if slices.Contains(seenInto, strings.ToLower(p.protocol)) {
			return "", true
		}
		return p.protocol, true
	}
	word, _, _ := strings.Cut(strings.ToLower(p.name), "-")
	if slices.Contains(unseen, word) {
		return word, false
	}
	return "", false
}

// visible are the policies without what cannot be had of a port: one on which something
// is spoken that no look sees into is held for its sessions, because requests were
// judged wrong there. A name is less than a policy of that very port. Spoken says of the
// ports that this changes what is spoken there.
func visible(u lifecycle.Untils, told []port) (_ lifecycle.Untils, spoken map[uint16]string) {
	// Of several Services an appProtocol decides over a name, and of two of them the one
	// that is not HTTP's.
	surely := make(map[uint16]bool)
	for _, p := range told {
		what, sure := p.speaks()
		_, named := u.Ports[p.number]
		switch {
		case p.other: // the same number of UDP is another port
			continue
		case sure && what == "" && !surely[p.number]:
			surely[p.number] = true
			delete(spoken, p.number)
			continue
		case what == "", !sure && (named || surely[p.number]), !u.Of(p.number).OfRequests():
			continue
		}
		surely[p.number] = surely[p.number] || sure
		if spoken == nil {
			spoken = make(map[uint16]string)
		}
		spoken[p.number] = what
	}
	if len(spoken) == 0 {
		return u, nil
	}
	seen := lifecycle.Untils{Rest: u.Rest, Ports: maps.Clone(u.Ports)}
	if seen.Ports == nil {
		seen.Ports = make(map[uint16]lifecycle.Until)
	}
	for port := range spoken {
		seen.Ports[port] = lifecycle.UntilSessions
	}
	return seen, spoken
}

// told are the ports that the pod's slices have listed or, where none ever has, those that
// its containers declare: a Service can be gone before its pods are, and what is spoken
// there is the same.
func (v *vigil) told() []port {
	if len(v.listed) > 0 {
		return v.listed
	}
	return declared(v.current())
}

// whySpoken says why the first session is held for that would be a matter of requests
// if it were not for what is spoken there; nothing where there is none.
func whySpoken(all []conntrack.Session, u lifecycle.Untils, served []uint16, spoken map[uint16]string) string {
	if len(spoken) == 0 {
		return ""
	}
	for _, s := range holders(all, u, served) {
		port := s.Server.Port()
		if _, ok := spoken[port]; !ok && s.Destination.Addr() == s.Server.Addr() {
			port = s.Destination.Port() // a proxy in the pod has taken it
		}
		if what, ok := spoken[port]; ok {
			return fmt.Sprintf("%s is spoken on port %d, and no look at its connections tells a request from a pause: have the application end them, by conndrain.io/notify", clip(what), port)
		}
	}
	return ""
}
