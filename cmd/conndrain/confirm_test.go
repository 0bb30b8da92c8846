package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// confirming is a watch that confirms something else than it counts.
type confirming struct {
	*fakeWatch
	confirm func(context.Context) (conntrack.Counts, error)
}

func (w confirming) Confirm(ctx context.Context) (conntrack.Counts, error) { return w.confirm(ctx) }

// TestZeroHasToBeConfirmed holds what a zero is worth that Confirm contradicts,
// cannot confirm in time, or that comes at the deadline with a handshake beside.
func TestZeroHasToBeConfirmed(t *testing.T) {
	zero := conntrack.Counts{Known: true}
	for name, tc := range map[string]struct {
		confirm func(ctx context.Context, asked int) (conntrack.Counts, error)
		counts  conntrack.Counts
		want    lifecycle.Reason
		after   time.Duration
	}{
		"confirmed": {
			func(context.Context, int) (conntrack.Counts, error) { return zero, nil },
			zero, lifecycle.Drained, 0,
		},
		"contradicted twice": {
			func(_ context.Context, asked int) (conntrack.Counts, error) {
				if asked <= 2 {
					return conntrack.Counts{Known: true, Open: 1}, nil
				}
				return zero, nil
			},
			zero, lifecycle.Drained, time.Second, // when it looks again
		},
		"never confirmed": {
			func(ctx context.Context, _ int) (conntrack.Counts, error) {
				<-ctx.Done()
				return conntrack.Counts{}, ctx.Err()
			},
			zero, lifecycle.Expired, time.Minute,
		},
		"the kernel cannot be asked": {
			func(context.Context, int) (conntrack.Counts, error) { return zero, errors.New("no answer") },
			zero, lifecycle.Expired, time.Minute,
		},
		"a handshake at the deadline": {
			func(context.Context, int) (conntrack.Counts, error) {
				return conntrack.Counts{Known: true, Opening: 1}, nil
			},
			conntrack.Counts{Known: true, Opening: 1}, lifecycle.Expired, time.Minute,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFakeWatch()
				fake.set(known(tc.counts))
				asked := 0
				watched := confirming{fake, func(ctx context.Context) (conntrack.Counts, error) {
					asked++
					return tc.confirm(ctx, asked)
				}}
				w := newTestWaiter(fake)
				w.policy.SettleMax = w.timeout + time.Second
				w.open = func(context.Context) (watch, error) { return watched, nil }
				r, err := w.wait(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				w.close()
				if r.reason != tc.want || r.waited != tc.after {
					t.Errorf("%s after %s, want %s after %s", r.reason, r.waited, tc.want, tc.after)
				}
			})
		})
	}
}
