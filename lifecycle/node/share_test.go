package node

import (
	"testing"

	"github.com/conndrain/conndrain/lifecycle"
)

// However many pods drain at once, their hooks' looks leave the node to its pods.
func TestShareOf(t *testing.T) {
	t.Parallel()
	sessions, requests := ports(nil, untilSessions), ports(nil, untilRequests)
	mixed := ports(map[uint16]lifecycle.Until{8080: untilStrict}, untilSessions)
	for _, tc := range []struct {
		name       string
		untils     lifecycle.Untils
		pods, cpus int
		want       float64
	}{
		{"one pod", requests, 1, 2, 0.05},
		{"one pod that is held for its sessions", sessions, 1, 2, 0.05},
		{"some pods", requests, 10, 2, 0.05},
		{"some pods that are held for their sessions", sessions, 10, 2, 0.01},
		{"a hundred", requests, 100, 2, 0.005},
		{"a hundred, one port of requests", mixed, 100, 2, 0.005},
		{"a hundred that are held for their sessions", sessions, 100, 2, 0.001},
		{"a hundred that are left alone", ports(nil, untilWithdrawn), 100, 2, 0.001},
		{"a hundred on a large node", requests, 100, 64, 0.05},
		{"none yet", requests, 0, 2, 0.05},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := shareOf(tc.untils, tc.pods, tc.cpus); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
