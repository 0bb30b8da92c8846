package hook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle"
)

// hookEnv makes this binary a hook that sends a signal to the first process of its
// container, and nothing else.
const hookEnv = "CONNDRAIN_TEST_SIGNAL"

func TestMain(m *testing.M) {
	if os.Getenv(hookEnv) != "" {
		if err := signalFirst(syscall.SIGUSR1); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

var errRefused = errors.New("connection refused")

// helper is what a hook finds at its node's address.
type helper func(context.Context, lifecycle.DrainRequest) (*http.Response, error)

func (h helper) RoundTrip(r *http.Request) (*http.Response, error) {
	var request lifecycle.DrainRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, err
	}
	return h(r.Context(), request)
}

// answers of a helper.
func answers(status int, body string) (*http.Response, error) {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status),
		Header: http.Header{lifecycle.Header: {lifecycle.HeaderV1}},
		Body:   io.NopCloser(strings.NewReader(body)),
	}, nil
}

func absent(context.Context, lifecycle.DrainRequest) (*http.Response, error) { return nil, errRefused }

func hangs(ctx context.Context, _ lifecycle.DrainRequest) (*http.Response, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// ours with the header taken away is what a mesh answers.
func proxy(context.Context, lifecycle.DrainRequest) (*http.Response, error) {
	r, err := answers(http.StatusBadGateway, `{"phase":"released","reason":"Drained"}`)
	r.Header.Del(lifecycle.Header)
	return r, err
}

func unknown(context.Context, lifecycle.DrainRequest) (*http.Response, error) {
	return answers(http.StatusServiceUnavailable, `{"message":"no pod has this address"}`)
}

func garbage(context.Context, lifecycle.DrainRequest) (*http.Response, error) {
	return answers(http.StatusOK, `<html>`)
}

// until is a helper that behaves so until the moment, and otherwise afterwards.
func until(moment time.Duration, before, after helper) helper {
	start := time.Now()
	return func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
		if time.Since(start) < moment {
			return before(ctx, r)
		}
		return after(ctx, r)
	}
}

// drain is a helper whose drain ends so many seconds after the first request and
// that tells a deadline.
func drain(ends, deadline time.Duration) helper {
	start := time.Now()
	return func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
		wait := time.NewTimer(min(lifecycle.Seconds(r.WaitSeconds), max(0, ends-time.Since(start))))
		defer wait.Stop()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-wait.C:
		}
		left := max(0, deadline-time.Since(start)).Seconds()
		a := lifecycle.DrainAnswer{Phase: "draining", RemainingSeconds: &left}
		if time.Since(start) >= ends {
			a.Phase, a.Reason = "released", lifecycle.Drained
		}
		b, err := json.Marshal(a)
		if err != nil {
			return nil, err
		}
		return answers(http.StatusOK, string(b))
	}
}

// sockets of the pod: one session until the moment.
func session(end time.Duration) func(context.Context) (sockdiag.Look, error) {
	start := time.Now()
	return func(context.Context) (sockdiag.Look, error) {
		l := sockdiag.Look{At: time.Now(), Listening: []uint16{8080}}
		if time.Since(start) < end {
			l.Sockets = []sockdiag.Socket{{
				State: sockdiag.Established,
				Local: netip.MustParseAddrPort("10.244.1.7:8080"), Peer: netip.MustParseAddrPort("10.244.2.9:40000"),
			}}
		}
		return l, nil
	}
}

func TestWait(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name    string
		helper  func() helper
		session time.Duration
		grace   time.Duration
		want    lifecycle.Reason
		by      bool // the helper
		waited  time.Duration
	}{
		{"drained", func() helper { return drain(12*s, 100*s) }, 0, 30 * s, lifecycle.Drained, true, 12 * s},
		{"drained later than the grace that the hook was told", func() helper { return drain(500*s, 890*s) }, 0, 30 * s, lifecycle.Drained, true, 500 * s},
		{"a helper that never releases", func() helper { return drain(time.Hour, 40*s) }, time.Hour, 30 * s, lifecycle.Expired, false, 40 * s},

		{"no helper, no session", func() helper { return absent }, 0, 100 * s, lifecycle.Drained, false, 15 * s},
		{"no helper, a session", func() helper { return absent }, 30 * s, 100 * s, lifecycle.Drained, false, 30 * s},
		{"no helper, a session that does not end", func() helper { return absent }, time.Hour, 100 * s, lifecycle.Expired, false, 90 * s},
		{"no helper, a short grace", func() helper { return absent }, 0, 10 * s, lifecycle.Drained, false, 8 * s},
		{"no helper, no time", func() helper { return absent }, time.Hour, 2 * s, lifecycle.Expired, false, 0},
		{"P29: a proxy answers", func() helper { return proxy }, 0, 100 * s, lifecycle.Drained, false, 15 * s},
		{"garbage", func() helper { return garbage }, 0, 100 * s, lifecycle.Drained, false, 15 * s},
		{"an address that is not known", func() helper { return unknown }, 0, 100 * s, lifecycle.Drained, false, 15 * s},
		{"a helper that hangs", func() helper { return hangs }, 0, 100 * s, lifecycle.Drained, false, 15 * s},
		{"P20: the helper comes late", func() helper { return until(5*s, absent, drain(20*s, 100*s)) }, 0, 100 * s, lifecycle.Drained, true, 20 * s},
		{"an address is known late", func() helper { return until(2*s, unknown, drain(20*s, 100*s)) }, 0, 100 * s, lifecycle.Drained, true, 20 * s},
		{"P20: the helper dies, the session goes on", func() helper { return until(5*s, drain(time.Hour, 100*s), absent) }, 70 * s, 30 * s, lifecycle.Drained, false, 70 * s},
		{"P20: the helper dies, its deadline stands", func() helper { return until(5*s, drain(time.Hour, 40*s), absent) }, time.Hour, 900 * s, lifecycle.Expired, false, 40 * s},
		{"P20: the helper hangs in the middle, the session goes on", func() helper { return until(5*s, drain(time.Hour, 100*s), hangs) }, 70 * s, 30 * s, lifecycle.Drained, false, 70 * s},
		{"P20: the helper hangs in the middle, its deadline stands", func() helper { return until(5*s, drain(time.Hour, 40*s), hangs) }, time.Hour, 900 * s, lifecycle.Expired, false, 40 * s},
		{"P29: a proxy answers, then the helper", func() helper { return until(5*s, proxy, drain(20*s, 100*s)) }, time.Hour, 100 * s, lifecycle.Drained, true, 20 * s},
		{"P29: a proxy answers from the middle on", func() helper { return until(5*s, drain(time.Hour, 100*s), proxy) }, 70 * s, 30 * s, lifecycle.Drained, false, 70 * s},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := Wait(t.Context(), Config{
					Node: "192.0.2.1", Grace: tc.grace, look: session(tc.session), transport: tc.helper(),
				})
				// The helper is tried again each second, and its absence is seen within one poll.
				if late := got.Waited - tc.waited; late < 0 || late > 2*s {
					t.Errorf("waited %s, want %s", got.Waited, tc.waited)
				}
				got.Waited = 0
				if diff := cmp.Diff(Result{Reason: tc.want, Helper: tc.by}, got); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestWaitTellsSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []float64
		inner := drain(25*time.Second, 100*time.Second)
		Wait(t.Context(), Config{look: session(0), transport: helper(
			func(ctx context.Context, r lifecycle.DrainRequest) (*http.Response, error) {
				told = append(told, r.ElapsedSeconds)
				return inner(ctx, r)
			})})
		want := []float64{0, 0.05, 5.1, 10.15, 15.2, 20.25}
		if diff := cmp.Diff(want, told, cmp.Comparer(func(a, b float64) bool { return max(a-b, b-a) < 1e-6 })); diff != "" {
			t.Errorf("elapsed (-want +got):\n%s", diff)
		}
	})
}

func TestWaitIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		got := Wait(ctx, Config{look: session(0), transport: drain(time.Hour, time.Hour)})
		if got.Reason != lifecycle.Cancelled || got.Waited != 3*time.Second {
			t.Errorf("%+v, want Cancelled after 3s", got)
		}
	})
}

func TestSocketsThatAreUnknownHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := Wait(t.Context(), Config{
			Grace: 50 * time.Second, transport: helper(absent),
			look: func(context.Context) (sockdiag.Look, error) { return sockdiag.Look{}, errors.ErrUnsupported },
		})
		if got.Reason != lifecycle.Expired || got.Waited != 40*time.Second {
			t.Errorf("%+v, want Expired after 40s: unknown is not none", got)
		}
	})
}

// A kernel that does not list the sockets holds no hook beyond its pod's grace period,
// whatever its helper does.
func TestLookThatHangsIsBounded(t *testing.T) {
	for _, tc := range []struct {
		name   string
		helper helper
		grace  time.Duration
	}{
		{"a helper that hangs", hangs, 3 * time.Second},
		{"a helper that hangs, and more time", hangs, 10 * time.Second},
		{"no helper", absent, 3 * time.Second},
		{"no helper, and more time", absent, 10 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := Wait(t.Context(), Config{
					Grace: tc.grace, transport: tc.helper,
					look: func(ctx context.Context) (sockdiag.Look, error) {
						<-ctx.Done()
						return sockdiag.Look{}, ctx.Err()
					},
				})
				if least := lifecycle.Budget(tc.grace, 0); got.Reason != lifecycle.Expired || got.Waited < least || got.Waited > least+overdue+lastLook {
					t.Errorf("%s after %s, want Expired after %s", got.Reason, got.Waited, least)
				}
			})
		})
	}
}

// Where a helper hangs until the end, the sockets still tell how it went.
func TestLookAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := Wait(t.Context(), Config{Grace: 3 * time.Second, transport: helper(hangs), look: session(0)})
		if got.Reason != lifecycle.Drained {
			t.Errorf("%s after %s, want Drained", got.Reason, got.Waited)
		}
	})
}

func TestHelperAddress(t *testing.T) {
	for node, want := range map[string]string{
		"10.0.0.1":            "10.0.0.1:10940",
		"10.0.0.1:99":         "10.0.0.1:99",
		"fd00::1":             "[fd00::1]:10940",
		"[fd00::1]":           "[fd00::1]:10940",
		"[fd00::1]:99":        "[fd00::1]:99",
		ServiceHost:           ServiceHost + ":10940",
		"":                    "",
		"host:port":           "",
		"host:0":              "",
		":10940":              "",
		"http://10.0.0.1:80/": "",
	} {
		got, err := helperAddress(node)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q leads to %q, %v; want %q", node, got, err, want)
		}
	}
}
