package node

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conndrain/conndrain/conntrack"
)

// heldWatch has one session, and counts the looks at it. To take in a report takes a
// while.
type heldWatch struct {
	watch
	takes time.Duration
	looks atomic.Int32
}

func (w *heldWatch) Changes() <-chan struct{} { return nil }

func (w *heldWatch) Counts() conntrack.Counts {
	w.looks.Add(1)
	return conntrack.Counts{Known: true, Open: 1}
}

func (w *heldWatch) Report(conntrack.SocketReport) { <-time.After(w.takes) }
func (w *heldWatch) Unreported()                   {}
func (w *heldWatch) Err() error                    { return nil }

// Whoever asks without end makes its drain look up no more often than that costs little;
// a request that comes alone does so at once.
func TestRequestsWithoutEnd(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes time.Duration
		most  int // looks in a second
	}{
		{"small ones", 0, 60},
		{"large ones", 10 * time.Millisecond, 12},
		{"while others hold the lock", time.Second, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				v := newVigil()
				w := &heldWatch{takes: tc.takes}
				v.drainer = &drainer{
					tally: newTally(prometheus.NewRegistry()),
					blind: newBlindness(slog.New(slog.DiscardHandler), prometheus.NewRegistry()),
				}
				v.watch, v.serving = w, true
				v.confirmBy, v.askAt = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
				done := make(chan struct{})
				go func() {
					defer close(done)
					v.run(ctx)
				}()
				for began := time.Now(); time.Since(began) < 10*time.Second; {
					v.report(conntrack.SocketReport{At: time.Now()})
					<-time.After(time.Millisecond)
				}
				if n := int(w.looks.Load()); n > 10*tc.most {
					t.Errorf("%d looks in 10 s, want at most %d", n, 10*tc.most)
				}
				<-time.After(lookEvery / 2)
				synctest.Wait()
				before := w.looks.Load()
				v.notify()
				<-time.After(lookPause)
				synctest.Wait()
				if tc.takes < time.Second && w.looks.Load() == before {
					t.Error("a request that comes alone waits")
				}
				stop()
				<-done
			})
		})
	}
}
