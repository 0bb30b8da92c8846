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
	all.mu.Lock()
	pods := len(all.byUID)
	all.mu.Unlock()
	return shareOf(d.settingsNow().Until, pods, runtime.NumCPU())
}

func shareOf(u lifecycle.Untils, pods, cpus int) float64 {
	together := tellingShare
	if u.Any(lifecycle.Until.OfRequests) {
		together = judgingShare
	}
	return min(hookShare, together*float64(cpus)/float64(max(1, pods)))
}
