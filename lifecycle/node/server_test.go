package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conndrain/conndrain/lifecycle"
)

type onePod struct{ pod *corev1.Pod }

func (p onePod) at(netip.Addr) *corev1.Pod     { return p.pod }
func (p onePod) wasTerminating(types.UID) bool { return false }

// newServerFor serves one pod, to whose drains happens what work does.
func newServerFor(life context.Context, t *testing.T, work func(context.Context, *drain)) (*httptest.Server, *drains) {
	t.Helper()
	c := Config{Logger: slog.New(slog.DiscardHandler)}
	all := newDrains(c, work)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "uid-1"}}
	s := &server{pods: onePod{pod}, drains: all, log: c.Logger, life: life, calls: func(types.UID) {}, delayed: func(time.Duration) {}}
	h := httptest.NewServer(s.http().Handler)
	t.Cleanup(h.Close)
	return h, all
}

func ask(t *testing.T, h *httptest.Server, body string) (lifecycle.DrainAnswer, int) {
	t.Helper()
	resp, err := h.Client().Post(h.URL+lifecycle.DrainPath, "", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return lifecycle.DrainAnswer{}, 0
	}
	defer resp.Body.Close()
	var a lifecycle.DrainAnswer
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Error(err)
	}
	return a, resp.StatusCode
}

// A hook that is held when the helper ends gets its drain's state, which releases
// nothing, and one that comes then is told to come again.
func TestHelperEndsInTheMiddle(t *testing.T) {
	life, stop := context.WithCancel(t.Context())
	defer stop()
	begun := make(chan struct{})
	h, all := newServerFor(life, t, func(ctx context.Context, d *drain) {
		d.confirm(podWithGrace(900, 900))
		d.become(state{phase: lifecycle.Draining})
		close(begun)
		<-ctx.Done()
	})
	type answer struct {
		lifecycle.DrainAnswer
		status int
	}
	held := make(chan answer, 1)
	go func() {
		a, status := ask(t, h, `{"waitSeconds":20}`)
		held <- answer{a, status}
	}()
	<-begun
	began := time.Now()
	stop()
	a := <-held
	if left, _ := a.Remaining(); a.Released() || a.status != http.StatusOK || left < 800*time.Second {
		t.Errorf("%d %+v, want the state of a drain that goes on", a.status, a.DrainAnswer)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("held for %s after the helper's end", took)
	}
	all.close()
	if a, status := ask(t, h, `{}`); status != http.StatusServiceUnavailable || a.Released() {
		t.Errorf("%d %+v, want 503", status, a)
	}
}

// A permission is not given by a helper that is ending: nobody is left to take it back.
func TestEndingHelperPermitsNothing(t *testing.T) {
	life, stop := context.WithCancel(t.Context())
	defer stop()
	h, all := newServerFor(life, t, func(ctx context.Context, d *drain) {
		d.confirm(podWithGrace(900, 900))
		d.become(state{phase: lifecycle.Draining})
		d.permit(&lifecycle.WhenQuiet{QuietSeconds: 1})
		<-ctx.Done()
	})
	const request = `{"can":["judge"],"sockets":{"mark":%q},"waitSeconds":20}`
	var mark string
	for permitted := false; !permitted; { // its first requests may come before the permission
		a, _ := ask(t, h, fmt.Sprintf(request, mark))
		mark, permitted = a.Mark, a.WhenQuiet != nil
	}
	held := make(chan lifecycle.DrainAnswer, 1)
	go func() {
		a, _ := ask(t, h, fmt.Sprintf(request, mark))
		held <- a
	}()
	for d := all.of("uid-1"); !d.isHeld(); {
		runtime.Gosched()
	}
	stop()
	if a := <-held; a.WhenQuiet != nil {
		t.Errorf("answer %+v", a)
	}
	all.close()
}

// isHeld says whether a request is here.
func (d *drain) isHeld() bool {
	d.sockets.mu.Lock()
	defer d.sockets.mu.Unlock()
	return len(d.sockets.parked) > 0
}

// All hooks of a pod are one drain, which goes on when they go away.
func TestHooksOfOnePodAreOneDrain(t *testing.T) {
	life, stop := context.WithCancel(t.Context())
	release := make(chan struct{})
	drains := 0
	h, all := newServerFor(life, t, func(_ context.Context, d *drain) {
		drains++
		d.confirm(podWithGrace(900, 900))
		<-release
		d.become(state{phase: lifecycle.Released, reason: lifecycle.Drained})
	})
	const hooks = 5
	answers := make(chan lifecycle.DrainAnswer, hooks)
	for range hooks {
		go func() {
			a, _ := ask(t, h, `{"waitSeconds":20}`)
			answers <- a
		}()
	}
	if a, _ := ask(t, h, `{}`); a.Phase != "serving" {
		t.Errorf("phase %s", a.Phase)
	}
	close(release)
	for range hooks {
		if a := <-answers; a.Reason != lifecycle.Drained {
			t.Errorf("answer %+v", a)
		}
	}
	stop()
	all.close()
	if drains != 1 {
		t.Errorf("%d drains", drains)
	}
}

func TestConnectionLimitOfOneAddress(t *testing.T) {
	l := newLimitListener(nil, nil)
	one, other := netip.MustParseAddr("10.244.1.7"), netip.MustParseAddr("10.244.1.8")
	for range maxFromOne {
		if !l.take(one, false) {
			t.Fatal("refused within the limit")
		}
	}
	if l.take(one, false) {
		t.Error("taken beyond the limit")
	}
	if !l.take(other, false) {
		t.Error("one caller keeps another out")
	}
	l.giveBack(one, false)
	if !l.take(one, false) {
		t.Error("what was given back is not there")
	}
	// Strangers of however many addresses leave room for the node's own pods.
	taken := 0
	a := netip.MustParseAddr("192.0.2.1")
	for range 2 * maxConnections {
		if a = a.Next(); l.take(a, true) {
			taken++
		}
	}
	if taken != maxStrangers {
		t.Errorf("%d strangers, want %d", taken, maxStrangers)
	}
	if !l.take(other, false) {
		t.Error("strangers keep a pod out")
	}
}

// A hook that comes when the drain before it has ended as one of a pod that serves
// on begins a drain of its own: the pod may be deleted by now.
func TestHookAfterARestartIsAnotherDrain(t *testing.T) {
	life, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	var drains atomic.Int32
	h, all := newServerFor(life, t, func(ctx context.Context, d *drain) {
		if drains.Add(1) == 1 {
			d.become(state{phase: lifecycle.Released, reason: lifecycle.NotTerminating})
			<-over
			return
		}
		<-ctx.Done()
	})
	if a, _ := ask(t, h, `{"waitSeconds":20}`); a.Reason != lifecycle.NotTerminating {
		t.Fatalf("answer %+v", a)
	}
	if a, _ := ask(t, h, `{}`); a.Released() {
		t.Errorf("the next hook got %+v", a)
	}
	close(over)
	for len(all.list()) != 1 || drains.Load() != 2 {
		runtime.Gosched()
	}
	if a, _ := ask(t, h, `{}`); a.Released() || drains.Load() != 2 {
		t.Errorf("%d drains, the last hook got %+v", drains.Load(), a)
	}
	stop()
	all.close()
}
