package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/lifecycle"
)

// ordered polls for so long, carries out what it is told, and returns how often it was.
func (j *judge) ordered(during time.Duration) (times int) {
	j.Helper()
	for begin := time.Now(); time.Since(begin) < during; {
		if a := j.polls(200 * time.Millisecond); a.Notify != nil {
			times++
			j.notified = &lifecycle.Notified{}
		}
	}
	return times
}

// The application is told once, after the withdrawal, by one hook that can; a hook whose
// request is held is told at once.
func TestApplicationIsToldOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, annotated(map[string]string{"conndrain.io/notify": "http://:8080/-/quiesce"}), quick)
	c := s.connect(s.serve())
	j, other := s.judge(c), s.judge(c)
	s.delete(60)
	s.reaches(lifecycle.Withdrawing, 1)
	if a := j.polls(0); a.Notify != nil {
		t.Errorf("told before the withdrawal: %+v", a.Notify)
	}
	held := make(chan lifecycle.DrainAnswer, 1)
	go func() { held <- j.polls(20 * time.Second) }()
	began := time.Now()
	s.withdraw()
	s.eventually("it is told", func() error {
		select {
		case a := <-held:
			if a.Notify != nil {
				if *a.Notify != (lifecycle.Notify{Method: "POST", Scheme: "http", Port: 8080, Path: "/-/quiesce"}) {
					t.Errorf("told to %+v", a.Notify)
				}
				return nil
			}
			go func() { held <- j.polls(20 * time.Second) }()
		default:
		}
		return errors.New("it is not yet")
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("told %s after the withdrawal", took)
	}
	j.notified = &lifecycle.Notified{Failure: "connection\nrefused"}
	if n := j.ordered(time.Second) + other.ordered(time.Second); n > 0 {
		t.Errorf("told %d times more", n)
	}
	s.eventNaming("NotifyFailed: The application was not told that it will end, by POST http://:8080/-/quiesce: connection refused")
	if n := countOf(s.events(), "NotifyFailed"); n != 1 {
		t.Errorf("%d Events: %q", n, s.events())
	}
}

func countOf(events []string, reason string) (n int) {
	for _, e := range events {
		if strings.HasPrefix(e, reason+": ") {
			n++
		}
	}
	return n
}

// A signal goes to the container of each hook that can, once.
func TestSignalIsSentByEachHook(t *testing.T) {
	t.Parallel()
	s := newScene(t, annotated(map[string]string{"conndrain.io/notify": "SIGUSR1"}), quick)
	c := s.connect(s.serve())
	one, two, sidecar := s.judge(c), s.judge(c), s.judge(c)
	sidecar.can = []string{lifecycle.CanJudge, lifecycle.CanRequest}
	s.delete(60)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	for _, tc := range []struct {
		name string
		hook *judge
		want int
	}{{"the first", one, 1}, {"the second", two, 1}, {"the first again", one, 0}, {"the sidecar", sidecar, 0}} {
		if n := tc.hook.ordered(time.Second); n != tc.want {
			t.Errorf("%s is told %d times, want %d", tc.name, n, tc.want)
		}
	}
	s.eventNaming("Notified: The application was told that it will end, by SIGUSR1")
}

// What stands in the way is said once, and holds nothing.
func TestApplicationCannotBeTold(t *testing.T) {
	t.Parallel()
	yes := true
	for name, tc := range map[string]struct {
		notify string
		change func(*corev1.Pod)
		can    []string
		says   string
	}{
		"shared processes": {"SIGUSR1", func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = &yes }, []string{lifecycle.CanSignal}, "shareProcessNamespace"},
		"only the sidecar": {"SIGUSR1", nil, []string{lifecycle.CanRequest}, "a signal needs the exec hook"},
		"an old hook":      {"http://:8080/", nil, nil, "the pod's hook is too old for it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, func(p *corev1.Pod) {
				p.Annotations = map[string]string{"conndrain.io/notify": tc.notify}
				if tc.change != nil {
					tc.change(p)
				}
			}, quick)
			c := s.connect(s.serve())
			j := s.judge(c)
			j.can = tc.can
			s.delete(900)
			s.withdraw()
			s.eventually("it is said", func() error {
				if a := j.polls(100 * time.Millisecond); a.Notify != nil {
					t.Fatalf("told all the same: %+v", a.Notify)
				}
				for _, e := range s.events() {
					if strings.HasPrefix(e, "NotifyFailed: ") && strings.Contains(e, tc.says) {
						return nil
					}
				}
				return errors.New("it is not")
			})
			c.end(t)
			j.sees()
			if a := j.released(); a.Reason != lifecycle.Drained {
				t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
			}
			if n := countOf(s.events(), "NotifyFailed"); n != 1 {
				t.Errorf("%d Events: %q", n, s.events())
			}
		})
	}
}
