package node

import (
	"context"
	"errors"
	"testing"
)

func TestTurnsAreOfEachPod(t *testing.T) {
	t.Parallel()
	var all turns
	end, err := all.take(t.Context(), "a")
	must(t, err)
	other, err := all.take(t.Context(), "b")
	must(t, err)
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.take(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a second request of the pod got %v", err)
	}
	end()
	end, err = all.take(t.Context(), "a")
	must(t, err)
	end()
	if len(all.of) != 0 {
		t.Errorf("%d turns are left", len(all.of))
	}
}
