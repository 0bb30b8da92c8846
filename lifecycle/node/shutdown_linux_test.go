package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestNodeShutdown(t *testing.T) {
	refused := errors.New("connection refused")
	up, down := newNode(""), newNode("[container runtime is down, node is shutting down]")
	// What the node says at the moments at which it is looked at.
	says := func(answers ...*corev1.Node) func(context.Context) (*corev1.Node, error) {
		return func(context.Context) (*corev1.Node, error) {
			n := answers[0]
			if len(answers) > 1 {
				answers = answers[1:]
			}
			if n == nil {
				return nil, refused
			}
			return n, nil
		}
	}
	logind := func(yes bool, err error) func(context.Context) (bool, error) {
		return func(context.Context) (bool, error) { return yes, err }
	}
	for _, tc := range []struct {
		name   string
		logind func(context.Context) (bool, error)
		node   func(context.Context) (*corev1.Node, error)
		want   bool
		err    bool
		took   time.Duration
	}{
		{"logind says yes", logind(true, nil), says(up), true, false, 0},
		{"logind says no", logind(false, nil), says(down), false, false, 0},
		{"the Node says yes", logind(false, errNoBus), says(down), true, false, 0},
		{"the Node says it late", logind(false, errNoBus), says(up, up, up, down), true, false, 3 * nodeEvery},
		{"the Node does not say it", logind(false, errNoBus), says(up), false, false, shutdownLook},
		{"not ready for another reason", logind(false, errNoBus), says(newNode("network is not ready")), false, false, shutdownLook},
		{"the API does not answer", logind(false, errNoBus), says(nil), false, true, shutdownLook},
		{"the API answers late", logind(false, errNoBus), says(nil, nil, up), false, false, shutdownLook},
		{"the API answers no more", logind(false, errNoBus), says(up, nil), false, true, shutdownLook},
		{"the API misses one answer", logind(false, errNoBus), says(up, up, up, up, nil), false, false, shutdownLook},
		{"both hang", func(ctx context.Context) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		}, func(ctx context.Context) (*corev1.Node, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, false, true, logindTimeout + 2*nodeTimeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShutdown(Config{Logger: slog.New(slog.DiscardHandler)}, nil)
				s.logind, s.node = tc.logind, tc.node
				begin := time.Now()
				got, err := s.begun(t.Context())
				if got != tc.want || (err != nil) != tc.err || time.Since(begin) != tc.took {
					t.Errorf("%t, %v after %s; want %t, an error: %t, after %s", got, err, time.Since(begin), tc.want, tc.err, tc.took)
				}
			})
		})
	}
}

// A hundred pods that end with their node ask for it hardly more often than one.
func TestNodeShutdownOfManyPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShutdown(Config{Logger: slog.New(slog.DiscardHandler)}, nil)
		s.logind = func(context.Context) (bool, error) { return false, errNoBus }
		asked := 0
		s.node = func(context.Context) (*corev1.Node, error) {
			asked++
			return newNode(""), nil
		}
		done := make(chan struct{})
		for range 100 {
			go func() {
				if yes, err := s.begun(t.Context()); yes || err != nil {
					t.Errorf("%t, %v", yes, err)
				}
				done <- struct{}{}
			}()
		}
		for range 100 {
			<-done
		}
		if asked > 10 {
			t.Errorf("asked %d times", asked)
		}
	})
}

func TestShutdownWindow(t *testing.T) {
	const byPriority = `{"kind": "KubeletConfiguration", "shutdownGracePeriod": "1s",
		"shutdownGracePeriodByPodPriority": [
			{"priority": 100000, "shutdownGracePeriodSeconds": 10},
			{"priority": 10000, "shutdownGracePeriodSeconds": 180},
			{"priority": 0, "shutdownGracePeriodSeconds": 60}]}`
	for _, tc := range []struct {
		name, config string
		told         float64
		priority     int32
		want         float64
	}{
		{"nothing said", "", 0, 0, 30},
		{"told", "shutdownGracePeriod: 90s", 45, 0, 45},
		{"of the kubelet", "shutdownGracePeriod: 90s\nshutdownGracePeriodCriticalPods: 20s\n", 0, 0, 70},
		{"of the kubelet, a critical pod", "shutdownGracePeriod: 90s\nshutdownGracePeriodCriticalPods: 20s\n", 0, 2_000_001_000, 20},
		{"a kubelet that does nothing", "kind: KubeletConfiguration\nshutdownGracePeriod: 0s\n", 0, 0, 30},
		{"all for critical pods", "shutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 20s\n", 0, 0, 30},
		{"by priority, the lowest", byPriority, 0, 0, 60},
		{"by priority, below all", byPriority, 0, -5, 60},
		{"by priority, between", byPriority, 0, 99_999, 180},
		{"by priority, on the boundary", byPriority, 0, 100_000, 10},
		{"by priority, above all", byPriority, 0, 2_000_001_000, 10},
		{"nothing that can be read", "{", 0, 0, 30},
		{"not a duration", "shutdownGracePeriod: soon", 0, 0, 30},
		{"negative", "shutdownGracePeriod: -90s", 0, 0, 30},
		{"too much", strings.Repeat("#", maxKubeletConfig) + "\nshutdownGracePeriod: 90s", 0, 0, 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Config{Logger: slog.New(slog.DiscardHandler), ShutdownWindow: time.Duration(tc.told * float64(time.Second))}
			if tc.config != "" {
				c.KubeletConfig = filepath.Join(t.TempDir(), "config.yaml")
				must(t, os.WriteFile(c.KubeletConfig, []byte(tc.config), 0o600))
			}
			if got := shutdownWindow(c, tc.priority).Seconds(); got != tc.want {
				t.Errorf("%v s, want %v", got, tc.want)
			}
		})
	}
	c := Config{Logger: slog.New(slog.DiscardHandler), KubeletConfig: filepath.Join(t.TempDir(), "none")}
	if got := shutdownWindow(c, 0); got != defaultWindow {
		t.Errorf("a file that is not there: %s", got)
	}
}
