package node

import (
	"slices"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// caller is a hook with a request here.
type caller struct {
	can []string
	// mark is that of the last answer that it had, had when that was made; had is zero
	// where it had none of this helper.
	mark string
	had  time.Time
	// looks is set where it tells of its sockets, and so gives marks back.
	looks bool
	// look receives when it is asked for a look.
	look <-chan struct{}
}

// knownCans are the words that mean something here.
var knownCans = []string{lifecycle.CanJudge, lifecycle.CanRequest, lifecycle.CanSignal}

func newCaller(r lifecycle.DrainRequest, arrived time.Time, look <-chan struct{}) caller {
	c := caller{look: look}
	for _, what := range knownCans {
		if slices.Contains(r.Can, what) { // whatever else it says is not kept
			c.can = append(c.can, what)
		}
	}
	if r.Sockets != nil {
		c.looks, c.mark = true, r.Sockets.Mark
		c.had, _ = marks.moment(c.mark, arrived)
	}
	return c
}

// does says whether the hook is able to do a thing.
func (c *caller) does(what string) bool { return slices.Contains(c.can, what) }
