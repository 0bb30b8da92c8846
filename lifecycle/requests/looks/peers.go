package looks

import (
	"net/netip"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

const (
	// vanished is how many whole looks in a row have to miss a socket that was there.
	vanished = 2
	// rememberPeers is for how long a peer is known whose socket was seen, and maxPeers
	// how many are. One that is not known holds while it is listed.
	rememberPeers = time.Minute
	maxPeers      = 100_000
)

// Peers are the clients whose sockets were seen, and in which look last. The zero
// Peers have seen nobody. They are for one goroutine.
type Peers struct {
	looks  int
	seen   map[netip.AddrPort]sighting
	pruned time.Time
}

type sighting struct {
	look int
	at   time.Time
}

// Look takes in a look. One that failed is none.
func (p *Peers) Look(s Sight) {
	if p.seen == nil {
		p.seen, p.pruned = make(map[netip.AddrPort]sighting), s.At
	}
	if s.Err != nil {
		return
	}
	p.looks++
	for i := range s.Sockets {
		// Also one that is opening, or that has closed and still waits for its client.
		peer := s.Sockets[i].Peer
		if _, known := p.seen[peer]; known || len(p.seen) < maxPeers {
			p.seen[peer] = sighting{p.looks, s.At}
		}
	}
	if s.At.Sub(p.pruned) < rememberPeers {
		return
	}
	p.pruned = s.At
	for peer, last := range p.seen {
		if s.At.Sub(last.at) > rememberPeers {
			delete(p.seen, peer)
		}
	}
}

// Missing counts those of the set that have no socket now and may live all the same:
// because none was ever seen, of one that is not ignored, or only the last look missed
// it.
func (p *Peers) Missing(set, ignored lifecycle.PeerSet) int {
	n := 0
	for peer := range set {
		last, known := p.seen[peer]
		if !known && ignored.Has(peer) {
			continue
		}
		if !known || last.look != p.looks && p.looks-last.look < vanished {
			n++
		}
	}
	return n
}
