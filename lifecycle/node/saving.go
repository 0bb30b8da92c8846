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
	s, asks := &v.saving, v.settingsNow()
	if !s.quiet.IsZero() || !asks.Until.Only(lifecycle.UntilSessions) || v.watch == nil || longer(asks.Quiet) {
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

// longer says whether the pod asks for a longer silence than its hooks go by, which know
// only the usual one here.
func longer(quiet *time.Duration) bool {
	return quiet != nil && (*quiet == 0 || *quiet > lifecycle.DefaultQuiet)
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
