package looks

import (
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle"
)

// Uncounted are the sockets of listed clients that nobody can tell anything of: those
// without a server yet, and those on a port that does not count, because nobody was
// ever seen to listen on it or another one was named. They live, so that they are not
// Missing either.
func (s Sight) Uncounted(sets ...lifecycle.PeerSet) int {
	n, next := 0, 0
	for i := range s.Sockets {
		k := &s.Sockets[i]
		if next < len(s.Counted) && s.Counted[next].Socket == *k {
			next++ // these are in the look's order
			continue
		}
		if k.State != sockdiag.SynRecv && !k.Live() {
			continue
		}
		for _, set := range sets {
			if set.Has(k.Peer) {
				n++
				break
			}
		}
	}
	return n
}
