package node

import (
	"slices"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// saving is how much earlier a pod that is held for its sessions could have gone, had
// it been held for its requests. It is used by one goroutine.
type saving struct {
	// could is since when nothing else has held the pod, quiet the first moment without a
	// request since then; zero where there is none.
	could, quiet time.Time
	// taken is the latest such moment that was looked at.
	taken time.Time
}

// save takes in what the pod is held for, and what its hooks say of its requests.
func (v *vigil) save(o lifecycle.Observation, now time.Time) {
	s := &v.saving
	if !s.quiet.IsZero() || !v.settingsNow().Until.Only(lifecycle.UntilSessions) || v.watch == nil {
		return
	}
	o.Requests, o.Blocking = o.Blocking, 0
	if !lifecycle.Decide(o, now).WhenQuiet {
		s.could = time.Time{}
		return
	}
	if s.could.IsZero() {
		s.could = now
	}
	at := v.judges.quietAt()
	if !at.After(s.could) || at.Equal(s.taken) {
		return
	}
	s.taken = at
	would, _ := visible(lifecycle.Untils{Rest: lifecycle.UntilRequests}, v.told())
	if !slices.ContainsFunc(v.watch.Sessions(), func(c conntrack.Session) bool {
		return c.State != conntrack.Idle && (c.Protocol != conntrack.TCP || untilOf(&c, would, v.target.Ports) == lifecycle.UntilSessions)
	}) {
		s.quiet = at
	}
}

// leastSaving is the least that is worth a word.
const leastSaving = time.Second

// saved is how much earlier that would have been; 0 is not worth a word.
func (s *saving) saved(now time.Time) time.Duration {
	if s.quiet.IsZero() || now.Sub(s.quiet) < leastSaving {
		return 0
	}
	return now.Sub(s.quiet)
}
