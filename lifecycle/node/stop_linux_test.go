package node

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

var errAway = errors.New("connection refused")

// away makes requests of a kind fail while the switch is on. It has to be called
// before the helper runs.
func (s *scene) away(verb, resource string) *atomic.Bool {
	on := new(atomic.Bool)
	s.api.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return on.Load(), nil, errAway
	})
	return on
}

func (s *scene) becomes(n *corev1.Node) {
	s.Helper()
	_, err := s.api.CoreV1().Nodes().Update(s.Context(), n, metav1.UpdateOptions{})
	must(s.T, err)
}

// A pod that ends with its node is held, although it is not deleted, for as long as
// the kubelet gives it.
func TestNodeShutdownHoldsWithoutADeletion(t *testing.T) {
	t.Parallel()
	const window = 10 * time.Second // 8 s less the reserve of a fifth
	for name, systemBus := range map[string]*bus{"by logind": {answer: true}, "by the Node": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) {
				c.Policy, c.ShutdownWindow = quick, window
				if systemBus != nil {
					systemBus.t = t
					systemBus.start()
					c.SystemBus = systemBus.socket
				}
			})
			if systemBus == nil {
				s.becomes(newNode("node is shutting down"))
			}
			s.start()
			s.connect(s.serve())
			begin := time.Now()
			s.eventually("held", func() error {
				a := s.ask(lifecycle.DrainRequest{})
				if left, ok := a.Remaining(); a.Phase != "withdrawing" || !ok || left > 8*time.Second {
					return errors.New("phase is " + a.Phase)
				}
				return nil
			})
			s.withdraw()
			a := s.hook()
			if took := time.Since(begin); a.Reason != lifecycle.Expired || took < 7*time.Second || took > 11*time.Second {
				t.Errorf("%s after %s, want %s after 8s", a.Reason, took, lifecycle.Expired)
			}
		})
	}
}

// P1: where logind can be asked, a restart is known for one at once; by the Node it
// takes the time that a shutdown may take to show.
func TestP1RestartTakesNoLongerThanThreeSeconds(t *testing.T) {
	t.Parallel()
	for name, systemBus := range map[string]*bus{"by logind": {answer: false}, "by the Node": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) {
				if systemBus != nil {
					systemBus.t = t
					systemBus.start()
					c.SystemBus = systemBus.socket
				}
			})
			s.start()
			s.connect(s.serve())
			begin := time.Now()
			a := s.hook()
			took := time.Since(begin)
			if a.Reason != lifecycle.NotTerminating || took > 3*time.Second {
				t.Errorf("%s after %s, want %s within 3s", a.Reason, took, lifecycle.NotTerminating)
			}
			if a.RemainingSeconds != nil {
				t.Errorf("%v seconds remain of a drain that is none", *a.RemainingSeconds)
			}
		})
	}
}

// A pod that is deleted while the node is asked for is a deletion.
func TestDeletedWhileTheNodeIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	c := s.connect(s.serve())
	s.ask(lifecycle.DrainRequest{})
	s.delete(60)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	c.end(t)
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
}

// An API that comes back and says that the pod is not deleted ends the waiting, and
// what was assumed meanwhile is forgotten.
func TestAPIAwayAtTheLiveGET(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Policy = quick })
	away := s.away("get", "pods")
	s.start()
	l := s.serve()
	c := s.connect(l)
	away.Store(true)
	s.eventually("held", func() error {
		if a := s.ask(lifecycle.DrainRequest{}); a.Phase != "withdrawing" {
			return errors.New("phase is " + a.Phase)
		}
		return nil
	})
	away.Store(false)
	if a := s.hook(); a.Reason != lifecycle.NotTerminating {
		t.Fatalf("reason %s, want %s", a.Reason, lifecycle.NotTerminating)
	}
	// The same with nothing to wait for: what is released as drained by an
	// assumption does not release the next termination.
	away.Store(true)
	c.end(t)
	s.withdraw()
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Fatalf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
	away.Store(false)
	s.connect(l)
	s.delete(60)
	s.reaches(lifecycle.Draining, 1)
}

// An API that goes away in the middle changes nothing, and one that comes back is
// listened to again.
func TestAPIAwayInTheMiddle(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Policy = quick })
	watches := make(chan *apiwatch.RaceFreeFakeWatcher, 100)
	s.api.PrependWatchReactor("pods", func(clienttesting.Action) (bool, apiwatch.Interface, error) {
		w := apiwatch.NewRaceFreeFake()
		watches <- w
		return true, w, nil
	})
	var all []*atomic.Bool
	for _, verb := range []string{"get", "list", "create"} {
		all = append(all, s.away(verb, "*"))
	}
	s.start()
	c := s.connect(s.serve())
	s.delete(60)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	// Every way to the API is cut, and its watch ends with an error.
	for _, on := range all {
		on.Store(true)
	}
	(<-watches).Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
	s.reaches(lifecycle.Draining, 1)
	for _, on := range all {
		on.Store(false)
	}
	// The second delete arrives by the list that follows.
	s.delete(30)
	s.eventually("the shorter grace period counts", func() error {
		if left, _ := s.ask(lifecycle.DrainRequest{}).Remaining(); left > 24*time.Second {
			return errors.New("it does not")
		}
		return nil
	})
	c.end(t)
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
}

// Before the first list nobody is known: hooks are told to come again, and the
// helper is not ready.
func TestAPIAwayBeforeTheFirstList(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Policy = quick })
	away := s.away("list", "pods")
	away.Store(true)
	s.run()
	s.eventually("a hook is told to come again", func() error {
		resp, err := s.http.Post("http://"+s.address(), "", http.NoBody)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || resp.Header.Get(lifecycle.Header) == "" {
			return errors.New(resp.Status)
		}
		return nil
	})
	if err := s.ready(nil); err == nil {
		t.Error("ready without a list")
	}
	away.Store(false)
	s.eventually("ready", func() error { return s.ready(nil) })
	s.delete(60)
	s.withdraw()
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
}

// P16: slices that cannot be listed hold the pod for the withdrawal's time only.
func TestP16SlicesCannotBeListed(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Policy = quick })
	s.away("list", "endpointslices").Store(true)
	s.start()
	s.delete(10)
	begin := time.Now()
	a := s.hook()
	if took := time.Since(begin); a.Reason != lifecycle.Drained || took < 2500*time.Millisecond || took > 7*time.Second {
		t.Errorf("%s after %s, want %s after 3s", a.Reason, took, lifecycle.Drained)
	}
}

// P21: a helper and a kubelet that start in the middle go on from the first hook's
// start, by the API server's clock: the deadline is not doubled.
func TestP21FirstStartByTheAPIServersClock(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		elapsed float64
		most    time.Duration // of 60 s less a reserve of 10 and 40 that are over
	}{
		{"the hook does not tell", 0, 10 * time.Second},
		{"the hook tells less than it was", 5, 45 * time.Second},
		{"the hook tells more", 47, 3 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			// The machine's clock and the server's differ by years.
			server := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
			grace, gone := int64(60), metav1.NewTime(server.Add(20*time.Second))
			s := prepareScene(t, netlab.LabOptions{}, func(p *corev1.Pod) {
				p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &gone, &grace
				p.Finalizers = []string{"example.com/kept"}
			}, func(c *Config) { c.Policy = quick })
			live := s.helper.drainer.live
			s.helper.drainer.live = func(ctx context.Context, namespace, name string, uid types.UID) (*corev1.Pod, time.Time, error) {
				pod, _, err := live(ctx, namespace, name, uid)
				return pod, server, err
			}
			s.start()
			s.connect(s.serve())
			s.withdraw()
			var left time.Duration
			s.eventually("draining", func() error {
				a := s.ask(lifecycle.DrainRequest{ElapsedSeconds: tc.elapsed})
				if a.Phase != "draining" {
					return errors.New("phase is " + a.Phase)
				}
				left, _ = a.Remaining()
				return nil
			})
			if left > tc.most || left < tc.most-8*time.Second {
				t.Errorf("%s remain, want %s", left, tc.most)
			}
		})
	}
}
