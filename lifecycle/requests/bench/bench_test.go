//go:build linux

package main

import (
	"io"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The bench itself, with the servers that need nothing installed: it has to see
// requests in flight and pauses, and every kind of traffic has to work. What the
// classifier makes of them in so short a time is not judged here.
func TestAllKindsOnGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := options{
		servers: "go,go-tls", links: "direct,2ms", clients: 1, trials: 100,
		lasts: 4 * time.Second, every: 22 * ms, seed: 1, record: dir,
	}
	r, err := measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Cells {
		if c.Requests == 0 || c.Failed > 0 {
			t.Errorf("%s, %s, %s: %d of %d requests failed", c.Traffic, c.Server, c.Link, c.Failed, c.Requests)
		}
	}
	sum, _ := r.sum(func(cell) bool { return true })
	if sum.Flying == 0 || sum.Pauses == 0 {
		t.Errorf("%d looks at a request in flight and %d at a pause, want some of each", sum.Flying, sum.Pauses)
	}
	if err := r.write(io.Discard, "text"); err != nil {
		t.Error(err)
	}
	again, err := measure(t.Context(), options{replay: dir})
	if err != nil {
		t.Fatal(err)
	}
	if replayed, _ := again.sum(func(cell) bool { return true }); replayed != sum {
		t.Errorf("judged again:\n%+v\nwant\n%+v", replayed, sum)
	}
}
