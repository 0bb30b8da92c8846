package node

import (
	"runtime"

	"github.com/conndrain/conndrain/lifecycle"
)

// What the hooks of a node may take of its CPUs for their looks, all together, and each
// of them of one CPU at the most. Where no pod is released between requests, their looks
// only tell what that would have saved.
const (
	judgingShare = 1. / 4
	tellingShare = 1. / 20
	hookShare    = 1. / 20
)

// lookShare is the part of a CPU that a hook of the drain may take for its looks: a node
// that drains has a hundred hooks, and its pods work on.
func (all *drains) lookShare(d *drain) float64 {
	return shareOf(d.settingsNow().Until, all.held(), runtime.NumCPU())
}

// held is how many pods' hooks are not let go yet. A drain is kept after its end for as
// long as its pod is there, which one that was only restarted may be for months.
func (all *drains) held() (n int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, d := range all.byUID {
		if d.now().phase != lifecycle.Released {
			n++
		}
	}
	return n
}

func shareOf(u lifecycle.Untils, pods, cpus int) float64 {
	together := tellingShare
	if u.Any(lifecycle.Until.OfRequests) {
		together = judgingShare
	}
	return min(hookShare, together*float64(cpus)/float64(max(1, pods)))
}
