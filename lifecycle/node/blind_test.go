package node

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conndrain/conndrain/conntrack"
)

// P14: a node that is blind is said once in the log, whatever number of pods find it
// out, and the gauge follows the last of them.
func TestP14BlindIsSaidOnce(t *testing.T) {
	var said bytes.Buffer
	b := newBlindness(slog.New(slog.NewTextHandler(&said, nil)), prometheus.NewRegistry())
	bySockets := conntrack.Counts{Known: true, Open: 1, Peak: 1, Source: conntrack.FromSockets}
	tracked := conntrack.Counts{Known: true, Peak: 1, Source: conntrack.FromConntrack}
	for range 3 {
		b.saw(bySockets, false)
		b.saw(bySockets, true)
	}
	if !b.now.Load() {
		t.Error("the node is not blind")
	}
	b.saw(tracked, false) // nothing is proven before a pod with sessions is let go
	if !b.now.Load() {
		t.Error("it sees again in the middle of a drain")
	}
	b.saw(tracked, true)
	if b.now.Load() {
		t.Error("it is still blind")
	}
	b.saw(bySockets, false)
	if n := strings.Count(said.String(), "bypass conntrack"); n != 1 || !b.now.Load() {
		t.Errorf("said %d times:\n%s", n, &said)
	}
}
