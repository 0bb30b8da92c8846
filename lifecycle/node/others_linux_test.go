package node

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/conndrain/conndrain/lifecycle"
)

// Where logind answers at once, a pod that is not terminating can ask without end.
func TestAskingCostsTheAPILittle(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	s.helper.drainer.shutdown.logind = func(context.Context) (bool, error) { return false, nil }
	var gets atomic.Int64
	s.api.PrependReactor("get", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		gets.Add(1)
		return false, nil, nil
	})
	answers := 0
	for begin := time.Now(); time.Since(begin) < 3*time.Second; {
		if a := s.ask(lifecycle.DrainRequest{WaitSeconds: 5}); a.Released() {
			answers++
		}
	}
	t.Logf("%d answers, %d GETs in 3 s", answers, gets.Load())
	if gets.Load() > 20 {
		t.Errorf("%d GETs in 3 s", gets.Load())
	}
}

// A relist may show a pod of the same name: the one before is gone.
func TestReplacedPodIsGone(t *testing.T) {
	t.Parallel()
	pod := func(uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web-0", UID: uid}, Spec: corev1.PodSpec{NodeName: "n1"}}
	}
	api := fake.NewClientset()
	w := apiwatch.NewFake()
	api.PrependWatchReactor("pods", func(k8stesting.Action) (bool, apiwatch.Interface, error) { return true, w, nil })
	told := make(chan string, 10)
	p, err := newPods(api, "n1", func(pod *corev1.Pod, gone bool) { told <- fmt.Sprintf("%s %v", pod.UID, gone) })
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.run(ctx) }()
	defer func() { stop(); <-done }()
	w.Add(pod("one"))
	w.Modify(pod("two"))
	for _, want := range []string{"one false", "one true", "two false"} {
		select {
		case got := <-told:
			if got != want {
				t.Errorf("told %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("nothing told, want %q", want)
		}
	}
}

// Pods that hold all the connections they get.
func TestConnectionsOfSomePodsLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	l := newLimitListener(nil, nil)
	for i := range maxConnections / maxFromOne {
		for range maxFromOne {
			l.take(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), false)
		}
	}
	if !l.take(netip.MustParseAddr("10.0.1.1"), false) {
		t.Error("a pod's first connection is refused")
	}
}
