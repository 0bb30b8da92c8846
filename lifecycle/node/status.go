package node

import (
	"cmp"
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

// closes keeps what is shown of the sessions at the release: not the sessions
// themselves, of which there may be thousands for as long as the pod is there.
func (s *sight) closes(left []conntrack.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.more = peersOf(left, s.begun, time.Now())
	s.sessions = nil
}

func (s *sight) peers(now time.Time) ([]lifecycle.Peer, int) {
	s.mu.Lock()
	look, begun, left, more := s.sessions, s.begun, s.left, s.more
	s.mu.Unlock()
	if look == nil {
		return left, more
	}
	return peersOf(blocking(look()), begun, now)
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
func peersOf(all []conntrack.Session, begun, now time.Time) ([]lifecycle.Peer, int) {
	n := min(len(all), lifecycle.MaxPeers)
	peers := make([]lifecycle.Peer, 0, n)
	for _, s := range all[:n] {
		p := lifecycle.Peer{
			Client: s.Client, Port: s.Server.Port(), Protocol: s.Protocol.String(), State: s.State.String(),
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
	s.Peers, s.MorePeers = d.sight.peers(now)
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
