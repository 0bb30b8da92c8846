package node

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

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

// Pods that have had their answer take none of it: neither those that only had a container
// restarted and serve on, nor those that are on their way out.
func TestShareIsOfTheHeld(t *testing.T) {
	t.Parallel()
	config := Config{Logger: slog.New(slog.DiscardHandler)}
	for _, tc := range []struct {
		name string
		ends state
		want int
	}{
		{"restarted", state{phase: lifecycle.Released, reason: lifecycle.NotTerminating}, 0},
		{"released", state{phase: lifecycle.Released, reason: lifecycle.Drained}, 0},
		{"perhaps only restarted", state{phase: lifecycle.Serving}, 100},
		{"held", state{phase: lifecycle.Draining}, 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			all := newDrains(config, func(_ context.Context, d *drain) { d.become(tc.ends) })
			for i := range 100 {
				pod := podWithGrace(30, 30)
				pod.UID = types.UID(fmt.Sprint("pod-", i))
				all.join(t.Context(), pod, time.Now(), false, 0)
			}
			all.close()
			if got := all.held(); got != tc.want {
				t.Errorf("%d are held, want %d", got, tc.want)
			}
			asks := newDrain(podWithGrace(30, 30), time.Now(), false, config)
			asks.settings.Until = ports(nil, untilRequests)
			if got, most := all.lookShare(asks), shareOf(asks.settings.Until, tc.want, runtime.NumCPU()); got != most {
				t.Errorf("a hook may take %g of a CPU, want %g", got, most)
			}
		})
	}
}
