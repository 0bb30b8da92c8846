package requests

import (
	"fmt"
	"testing"
	"time"
)

// In none of many made-up worlds is a request in flight taken for a pause: never by
// the strict rule, and by the wide one never where no answer pauses. Most of the real
// pauses are seen, by all that it takes to see them.
func TestTrafficOfAllKinds(t *testing.T) {
	t.Parallel()
	const worlds, limit = 400, 20 * time.Second
	type share struct{ pauses, strict, wide int }
	shares := make(chan share, worlds)
	t.Run("worlds", func(t *testing.T) {
		for seed := range uint64(worlds) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w, c := newWorld(seed), New()
				var s share
				w.run(limit, func(at time.Duration, all []Figures) {
					for i, v := range c.Look(time.Unix(1000, 0).Add(at), all) {
						if !w.lines[i].flight {
							s.pauses++
							s.strict += count(v.Strict == Between)
							s.wide += count(v.Wide == Between)
							continue
						}
						if v.Strict == Between || v.Wide == Between && w.chunked == 0 {
							t.Fatalf("after %s: strict %s, wide %s while a request is in flight on %s: %+v",
								at, v.Strict, v.Wide, all[i].Peer, w.traffic)
						}
					}
				})
				shares <- s
			})
		}
	})
	close(shares)
	var all share
	for s := range shares {
		all.pauses += s.pauses
		all.strict += s.strict
		all.wide += s.wide
	}
	// The worlds are the same each time: fewer means that a rule has changed.
	if all.strict*1000 < all.pauses*165 || all.wide*1000 < all.pauses*245 {
		t.Errorf("of %d looks in pauses %d are between by the strict rule and %d by the wide one", all.pauses, all.strict, all.wide)
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
