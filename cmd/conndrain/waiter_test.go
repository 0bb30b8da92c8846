package main

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// ending is what of a result a test looks at.
type ending struct {
	Reason lifecycle.Reason
	After  time.Duration
	Cut    int
}

// noCut is an unknown number of cut sessions.
const noCut = -1

func endOf(r result) ending {
	e := ending{r.reason, r.waited, noCut}
	if cut := r.cut(); cut != nil {
		e.Cut = *cut
	}
	return e
}

// newTestWaiter waits on the fake for 60 s at most.
func newTestWaiter(w *fakeWatch) *waiter {
	return &waiter{
		open:    w.open,
		policy:  lifecycle.Policy{SettleMax: lifecycle.DefaultSettleMax},
		timeout: time.Minute,
		show:    func(status) {},
	}
}

func TestWaitEnds(t *testing.T) {
	type counts = conntrack.Counts
	type step struct {
		at     time.Duration
		change func(*fakeWatch)
		silent bool // not announced
	}
	const s = time.Second
	for _, tc := range []struct {
		name    string
		steps   []step
		settle  time.Duration
		timeout time.Duration // 60 s unless set
		cancel  time.Duration // never unless set
		want    ending
	}{
		{
			name:  "nothing there",
			steps: []step{{at: 100 * time.Millisecond, change: known(counts{})}},
			want:  ending{lifecycle.Drained, 100 * time.Millisecond, 0},
		},
		{
			name:  "the last session ends",
			steps: []step{{at: 0, change: known(counts{Open: 2})}, {at: s, change: known(counts{Open: 1})}, {at: 2 * s, change: known(counts{})}},
			want:  ending{lifecycle.Drained, 2 * s, 0},
		},
		{
			name:    "the deadline is exact",
			steps:   []step{{at: 0, change: known(counts{Open: 1, Lost: 1, Idle: 4})}},
			timeout: 5*s + 7*time.Millisecond,
			want:    ending{lifecycle.Expired, 5*s + 7*time.Millisecond, 2},
		},
		{
			name:  "idle does not hold",
			steps: []step{{at: 0, change: known(counts{Idle: 1})}},
			want:  ending{lifecycle.Drained, 0, 0},
		},
		{
			name:  "lost holds",
			steps: []step{{at: 0, change: known(counts{Lost: 1})}, {at: 9 * s, change: known(counts{})}},
			want:  ending{lifecycle.Drained, 9 * s, 0},
		},
		{
			name: "unknown is not zero",
			steps: []step{
				{at: 0, change: known(counts{Open: 1})},
				{at: s, change: func(w *fakeWatch) { w.counts = counts{} }},
				{at: 4 * s, change: known(counts{})},
			},
			want: ending{lifecycle.Drained, 4 * s, 0},
		},
		{
			name:    "unknown to the end",
			timeout: 5 * s,
			want:    ending{lifecycle.Expired, 5 * s, noCut},
		},
		{
			name:    "unknown at the end, last known zero",
			steps:   []step{{at: 0, change: known(counts{})}, {at: s, change: unknown}},
			settle:  3 * s,
			timeout: 5 * s,
			want:    ending{lifecycle.Expired, 5 * s, noCut},
		},
		{
			name:    "unknown at the end, last known two",
			steps:   []step{{at: 0, change: known(counts{Open: 2})}, {at: s, change: unknown}},
			timeout: 5 * s,
			want:    ending{lifecycle.Expired, 5 * s, 2},
		},
		{
			name:   "settle since the start",
			steps:  []step{{at: 0, change: known(counts{})}},
			settle: 5 * s,
			want:   ending{lifecycle.Drained, 5 * s, 0},
		},
		{
			name:   "settle runs while sessions live",
			steps:  []step{{at: 0, change: known(counts{Open: 1})}, {at: 7 * s, change: known(counts{})}},
			settle: 5 * s,
			want:   ending{lifecycle.Drained, 7 * s, 0},
		},
		{
			name: "settle since each new session",
			steps: []step{
				{at: 0, change: known(counts{Open: 1})},
				{at: 3 * s, change: func(w *fakeWatch) { w.counts.Open, w.counts.New, w.counts.LastNew = 2, 1, time.Now() }},
				{at: 4 * s, change: func(w *fakeWatch) { w.counts.Open = 0 }},
			},
			settle: 5 * s,
			want:   ending{lifecycle.Drained, 8 * s, 0},
		},
		{
			name:   "a new session in the quiet time is waited for",
			settle: 5 * s,
			steps: []step{
				{at: 0, change: known(counts{})},
				{at: 3 * s, change: func(w *fakeWatch) { w.counts.Open, w.counts.New, w.counts.LastNew = 1, 1, time.Now() }},
				{at: 30 * s, change: func(w *fakeWatch) { w.counts.Open = 0 }},
			},
			want: ending{lifecycle.Drained, 30 * s, 0},
		},
		{
			name:  "a handshake holds",
			steps: []step{{at: 0, change: known(counts{Opening: 1})}, {at: 2 * s, change: known(counts{Open: 1})}, {at: 9 * s, change: known(counts{})}},
			want:  ending{lifecycle.Drained, 9 * s, 0},
		},
		{
			name: "what only time changes is seen without an announcement",
			steps: []step{
				{at: 0, change: known(counts{Open: 1})},
				{at: 1500 * time.Millisecond, change: known(counts{}), silent: true},
			},
			want: ending{lifecycle.Drained, 2 * s, 0},
		},
		{
			name:   "cancelled at once",
			steps:  []step{{at: 0, change: known(counts{Open: 3})}},
			cancel: 1234 * time.Millisecond,
			want:   ending{lifecycle.Cancelled, 1234 * time.Millisecond, 0},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFakeWatch()
				for _, step := range tc.steps {
					if step.at == 0 {
						step.change(fake)
						continue
					}
					if step.silent {
						time.AfterFunc(step.at, func() { fake.change(step.change) })
						continue
					}
					fake.later(step.at, step.change)
				}
				w := newTestWaiter(fake)
				w.policy.Settle = tc.settle
				if tc.timeout != 0 {
					w.timeout = tc.timeout
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.cancel != 0 {
					time.AfterFunc(tc.cancel, cancel)
				}
				r, err := w.wait(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, endOf(r)); diff != "" {
					t.Errorf("ending (-want +got):\n%s", diff)
				}
				w.close()
				if !fake.closed {
					t.Error("the watch is still open")
				}
			})
		})
	}
}

// TestWaitDoesNotHangWithTheKernel has a kernel that never answers.
func TestWaitDoesNotHangWithTheKernel(t *testing.T) {
	for _, tc := range []struct {
		name   string
		cancel time.Duration
		want   ending
	}{
		{"deadline", 0, ending{lifecycle.Expired, time.Minute, noCut}},
		{"cancelled", 3 * time.Second, ending{lifecycle.Cancelled, 3 * time.Second, noCut}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := newFakeWatch()
				answer := make(chan struct{})
				w := newTestWaiter(fake)
				w.open = func(context.Context) (watch, error) {
					<-answer
					return fake, nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.cancel != 0 {
					time.AfterFunc(tc.cancel, cancel)
				}
				r, err := w.wait(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, endOf(r)); diff != "" {
					t.Errorf("ending (-want +got):\n%s", diff)
				}
				start := time.Now()
				w.close()
				if d := time.Since(start); d != closeAtMost {
					t.Errorf("closing took %s", d)
				}
				close(answer)
				synctest.Wait()
				if !fake.closed {
					t.Error("a watch that came too late is still open")
				}
			})
		})
	}
}

func TestWaitReturnsWhyItCannotWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWaiter(newFakeWatch())
		w.open = func(context.Context) (watch, error) { return nil, conntrack.ErrPermission }
		if _, err := w.wait(t.Context()); !errors.Is(err, conntrack.ErrPermission) {
			t.Errorf("error %v, want %v", err, conntrack.ErrPermission)
		}
		w.close()
	})
}

func TestWaitNamesTheSessionsThatWereLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeWatch()
		fake.set(known(conntrack.Counts{Open: 1, Lost: 1, Idle: 1}))
		fake.sessions = []conntrack.Session{
			{Kernel: "a", State: conntrack.Open},
			{Kernel: "b", State: conntrack.Idle},
			{Kernel: "c", State: conntrack.Lost},
			{Kernel: "d", State: conntrack.Opening},
		}
		w := newTestWaiter(fake)
		w.list = true
		r, err := w.wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var left string
		for _, s := range r.left {
			left += s.Kernel
		}
		if left != "ac" {
			t.Errorf("left %q, want a and c", left)
		}
		w.close()
	})
}

// TestWaitSaysWhyTheSessionsAreUnknown has a kernel that stops answering.
func TestWaitSaysWhyTheSessionsAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeWatch()
		fake.set(known(conntrack.Counts{Open: 1}))
		fault := errors.New("no buffer space")
		fake.later(time.Second, func(w *fakeWatch) { w.counts.Known, w.fault = false, fault })
		w := newTestWaiter(fake)
		var shown error
		w.show = func(s status) { shown = s.fault }
		r, err := w.wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(shown, fault) || !errors.Is(r.fault, fault) {
			t.Errorf("shown %v, in the result %v, want %v", shown, r.fault, fault)
		}
		w.close()
	})
}

func TestResultJSON(t *testing.T) {
	seen := conntrack.Counts{Known: true, Open: 1, Idle: 2, Lost: 3, Peak: 7, New: 1}
	gone := conntrack.Counts{Known: true, Idle: 2, Peak: 7, New: 1, Source: conntrack.FromSockets}
	stale, pending := seen, seen
	stale.Known, pending.ReportsPending = false, true
	for _, tc := range []struct {
		name string
		r    result
		want string
	}{
		{
			"drained",
			result{reason: lifecycle.Drained, waited: 12345678 * time.Microsecond, counts: gone, lastKnown: gone, everKnown: true},
			`{"reason":"Drained","source":"sockets","waitedSeconds":12.346,"open":0,"idle":2,"lost":0,"cut":0,"peak":7,"new":1}`,
		},
		{
			"expired",
			result{reason: lifecycle.Expired, waited: 5 * time.Second, counts: seen, lastKnown: seen, everKnown: true},
			`{"reason":"Expired","source":"conntrack","waitedSeconds":5,"open":1,"idle":2,"lost":3,"cut":4,"peak":7,"new":1}`,
		},
		{
			"cancelled cuts nothing",
			result{reason: lifecycle.Cancelled, waited: 5 * time.Second, counts: seen, lastKnown: seen, everKnown: true},
			`{"reason":"Cancelled","source":"conntrack","waitedSeconds":5,"open":1,"idle":2,"lost":3,"cut":0,"peak":7,"new":1}`,
		},
		{
			"unknown now",
			result{reason: lifecycle.Expired, waited: 5 * time.Second, counts: stale, lastKnown: seen, everKnown: true},
			`{"reason":"Expired","source":"conntrack","waitedSeconds":5,"open":null,"idle":null,"lost":null,"cut":4,"peak":7,"new":1}`,
		},
		{
			"a socket may be one more",
			result{reason: lifecycle.Expired, waited: 5 * time.Second, counts: pending, lastKnown: seen, everKnown: true},
			`{"reason":"Expired","source":"conntrack","waitedSeconds":5,"open":null,"idle":null,"lost":null,"cut":4,"peak":7,"new":1}`,
		},
		{
			"a zero that no socket has confirmed",
			result{
				reason: lifecycle.Expired, waited: 5 * time.Second, counts: gone, lastKnown: gone, everKnown: true,
				socketsPending: true,
			},
			`{"reason":"Expired","source":"sockets","waitedSeconds":5,"open":null,"idle":null,"lost":null,"cut":null,"peak":7,"new":1}`,
		},
		{
			"never known",
			result{reason: lifecycle.Expired, waited: 5 * time.Second},
			`{"reason":"Expired","source":"conntrack","waitedSeconds":5,"open":null,"idle":null,"lost":null,"cut":null,"peak":null,"new":null}`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := json.Marshal(tc.r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("object (-want +got):\n%s", diff)
			}
		})
	}
}
