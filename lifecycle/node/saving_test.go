package node

import (
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// What would have been saved is told only where the pod asks for no longer a silence than
// its hooks, which know the usual one, go by.
func TestSavingGoesByTheUsualSilence(t *testing.T) {
	t.Parallel()
	second, minute, never := time.Second, time.Minute, time.Duration(0)
	for _, tc := range []struct {
		name  string
		quiet *time.Duration
		saves bool
	}{
		{"the usual one", nil, true},
		{"a shorter one", &second, true},
		{"a longer one", &minute, false},
		{"none is long enough", &never, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := newVigil()
			v.watch = crowd{sessions: []conntrack.Session{tcp(1, 8080)}}
			v.settings.Quiet = tc.quiet
			now := time.Now()
			o := lifecycle.Observation{Known: true, Blocking: 1, Deadline: now.Add(time.Minute)}
			v.save(o, now)
			v.judges.quiet = now.Add(time.Second)
			v.save(o, now.Add(2*time.Second))
			if got := v.saving.saved(now.Add(20 * time.Second)); (got > 0) != tc.saves {
				t.Errorf("%s saved", got)
			}
		})
	}
}
