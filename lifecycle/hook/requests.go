package hook

import (
	"net/netip"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

const (
	// reportRest is what of a request is neither sockets nor classes, socketText and
	// peerText are what one socket and one peer take of it at the most.
	reportRest = 16 << 10
	socketText = len(`"65535 [0000:0000:0000:0000:0000:ffff:255.255.255.255]:65535",`)
	peerText   = len(`"0000:0000:0000:0000:0000:ffff:255.255.255.255":[65535],`)
)

// reportOrder is which classes are named first, where there is no room for all: those
// that hold.
var reportOrder = []requests.Class{requests.Owes, requests.Sending, requests.Streaming, requests.Unknown, requests.Between}

// report is what the pod's connections are doing, for the helper. beside is what of
// the request its sockets take. quietAt is when a pod under requests could have gone
// last; zero is never.
func report(s looks.Sight, beside int, quietAt time.Time) *lifecycle.RequestReport {
	r := lifecycle.RequestReport{Blind: s.Blind()}
	if r.Blind != "" {
		return &r
	}
	r.Counts = make(map[string]int)
	doing := make(map[requests.Class][]netip.AddrPort)
	for i := range s.Counted {
		c := &s.Counted[i]
		r.Counts[c.Wide.String()]++
		doing[c.Wide] = append(doing[c.Wide], c.Peer)
	}
	room := min(lifecycle.MaxClassedPeers, max(0, (lifecycle.MaxRequestBytes-reportRest-beside)/peerText))
	r.Classes = make(map[string]lifecycle.PeerSet)
	for _, class := range reportOrder {
		peers := doing[class]
		peers = peers[:min(len(peers), room)]
		room -= len(peers)
		if len(peers) == 0 {
			continue
		}
		set := make(lifecycle.PeerSet, len(peers))
		for _, p := range peers {
			set.Add(p)
		}
		r.Classes[class.String()] = set
	}
	if !quietAt.IsZero() {
		ago := max(0, time.Since(quietAt).Seconds())
		r.QuietAgoSeconds = &ago
	}
	return &r
}

// textSize is how much of a request a list takes at the most.
func textSize(l *lifecycle.SocketList) int {
	if l == nil {
		return 0
	}
	return socketText * (len(l.Inbound) + len(l.Other) + len(l.Opening))
}

// isQuiet says whether a pod under requests could go, if it asks for nothing else: no
// request is in flight, as far as anybody can tell, and where nobody can, nothing was
// said for as long as usual.
func isQuiet(s looks.Sight) bool {
	if s.Blind() != "" {
		return false
	}
	for i := range s.Counted {
		v := &s.Counted[i].Verdict
		silent := v.Wide == requests.Unknown && v.Silent >= lifecycle.DefaultQuiet
		if v.Wide != requests.Between && !silent {
			return false
		}
	}
	return true
}
