package node

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// sight is what people can see of a drain beyond its state. It is safe for
// concurrent use.
type sight struct {
	mu sync.Mutex
	// sessions tell of the sessions now; nil while nobody watches them.
	sessions func() []conntrack.Session
	// left are the peers at the release, more how many there were beyond them.
	left []lifecycle.Peer
	more int
	// between is how many open sessions had no request in flight at the release.
	between *int
	// untils and served are the policies by which sessions hold.
	untils lifecycle.Untils
	served []uint16
	// fault is why the sessions are unknown.
	fault error
	// begun is since when sessions are known to be new.
	begun time.Time
}

// opens lets people see the sessions until closes.
func (s *sight) opens(sessions func() []conntrack.Session, begun time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions, s.begun = sessions, begun
}

// notes keeps why the sessions are unknown.
func (s *sight) notes(fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// holdsBy keeps by which policies sessions hold.
func (s *sight) holdsBy(u lifecycle.Untils, served []uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.untils, s.served = u, served
}

// closes keeps what is shown of the sessions at the release: not the sessions
// themselves, of which there may be thousands for as long as the pod is there.
func (s *sight) closes(left []conntrack.Session, of *lifecycle.RequestReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.more = peersOf(left, of, s.begun, time.Now())
	if s.sessions != nil {
		s.between = between(s.sessions(), of)
	}
	s.sessions = nil
}

// letGo keeps that so many sessions were between two requests at the release.
func (s *sight) letGo(between int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.between = new(max(0, between))
}

// peers are those that hold the pod, and how many more there are. between is how many of
// the open ones have no request in flight, nil where nobody tells.
func (s *sight) peers(of *lifecycle.RequestReport, now time.Time) (_ []lifecycle.Peer, more int, _ *int) {
	s.mu.Lock()
	look, begun, left, more, idle, u, served := s.sessions, s.begun, s.left, s.more, s.between, s.untils, s.served
	s.mu.Unlock()
	if look == nil {
		return left, more, idle
	}
	all := look()
	left, more = peersOf(holders(all, u, served), of, begun, now)
	return left, more, between(all, of)
}

// restful is how many open sessions have no request in flight, 0 where nobody tells.
func (s *sight) restful(of *lifecycle.RequestReport) int {
	s.mu.Lock()
	look := s.sessions
	s.mu.Unlock()
	if look == nil || of == nil {
		return 0
	}
	return *between(look(), of)
}

// betweenRequests is the word of connections without a request in flight, classWords
// are all that a hook may say.
const betweenRequests = "between"

var classWords = []string{"owes", "sending", "streaming", betweenRequests, "unknown"}

// between counts the open sessions without a request in flight. A hook names no more
// clients than lifecycle.MaxClassedPeers.
func between(all []conntrack.Session, of *lifecycle.RequestReport) *int {
	if of == nil {
		return nil
	}
	n, open := 0, 0
	for _, s := range all {
		if s.State != conntrack.Open || s.Protocol != conntrack.TCP {
			continue
		}
		open++
		if of.Classes[betweenRequests].Has(s.Client) {
			n++
		}
	}
	if told := of.Counts[betweenRequests]; told > len(of.Classes[betweenRequests]) {
		n = max(n, min(told, open))
	}
	return &n
}

// classOf is the word for what a client's connection is doing, empty where nobody tells.
func classOf(peer netip.AddrPort, of *lifecycle.RequestReport) string {
	if of == nil {
		return ""
	}
	for _, class := range classWords {
		if of.Classes[class].Has(peer) {
			return class
		}
	}
	return ""
}

func (s *sight) unknown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil {
		return ""
	}
	return s.fault.Error()
}

// peersOf are the first of the sessions, in their order, and how many more there are.
func peersOf(all []conntrack.Session, of *lifecycle.RequestReport, begun, now time.Time) ([]lifecycle.Peer, int) {
	n := min(len(all), lifecycle.MaxPeers)
	peers := make([]lifecycle.Peer, 0, n)
	for _, s := range all[:n] {
		p := lifecycle.Peer{
			Client: s.Client, Port: s.Server.Port(), Protocol: s.Protocol.String(), State: s.State.String(),
		}
		if s.Protocol == conntrack.TCP {
			p.Request = classOf(s.Client, of)
		}
		if isNew(s, begun) {
			age := now.Sub(s.FirstSeen).Seconds()
			p.AgeSeconds = &age
		}
		if s.Quiet >= 0 {
			quiet := s.Quiet.Seconds()
			p.QuietSeconds = &quiet
		}
		peers = append(peers, p)
	}
	return peers, len(all) - n
}

// isNew says whether a session began during the drain. How old others are nobody
// knows.
func isNew(s conntrack.Session, begun time.Time) bool {
	return s.KnownAge && s.FirstSeen.After(begun)
}

// status is how the drain stands, for people.
func (d *drain) status(now time.Time) lifecycle.DrainStatus {
	d.mu.Lock()
	c := d.state.counts
	s := lifecycle.DrainStatus{
		Namespace: d.pod.Namespace, Pod: d.pod.Name, UID: string(d.pod.UID),
		Phase: d.state.phase.String(), Reason: d.state.reason,
		StartedAt: d.first.Round(0).UTC(), ElapsedSeconds: now.Sub(d.first).Seconds(),
		Source:     c.Source.String(),
		ReleasedBy: d.by, ReleasedFor: d.why,
	}
	if d.confirmed && d.state.phase != lifecycle.Released {
		left := max(0, d.deadline.Sub(now)).Seconds()
		s.RemainingSeconds = &left
	}
	d.mu.Unlock()
	if c.Known {
		s.Open, s.Idle, s.Lost, s.New = &c.Open, &c.Idle, &c.Lost, &c.New
	} else {
		s.Unknown = d.sight.unknown()
	}
	var between *int
	s.Peers, s.MorePeers, between = d.sight.peers(d.judges.classes(now), now)
	switch {
	case !c.Known:
	case c.Open == 0:
		s.Between = new(0) // nobody has to tell
	case between != nil:
		s.Between = new(min(*between, c.Open)) // they are of two moments
	}
	return s
}

// status is how the node's drains stand, those that began first coming first.
func (all *drains) status(now time.Time) []lifecycle.DrainStatus {
	list := []lifecycle.DrainStatus{}
	for _, d := range all.list() {
		list = append(list, d.status(now))
	}
	slices.SortFunc(list, func(a, b lifecycle.DrainStatus) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return list
}
