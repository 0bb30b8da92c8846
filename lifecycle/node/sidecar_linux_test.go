package node

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	k8stesting "k8s.io/client-go/testing"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

// lagging makes the watch of pods tell of no deletion: only a look at the API does.
func (s *scene) lagging() {
	s.api.PrependWatchReactor("pods", func(a k8stesting.Action) (bool, apiwatch.Interface, error) {
		w, err := s.api.Tracker().Watch(a.GetResource(), a.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		return true, apiwatch.Filter(w, func(e apiwatch.Event) (apiwatch.Event, bool) {
			p, ok := e.Object.(*corev1.Pod)
			return e, !ok || p.DeletionTimestamp == nil
		}), nil
	})
}

// asks asks the pod's sidecar, from another machine, and receives what it says.
func (s *scene) asks() <-chan string {
	said := make(chan string, 1)
	c := &http.Client{Transport: &http.Transport{DialContext: s.lab.Client.Dial, DisableKeepAlives: true}}
	url := "http://" + netip.AddrPortFrom(s.lab.PodAddr, 10942).String() + "/drain"
	go func() {
		req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, url, nil)
		if err != nil {
			said <- err.Error()
			return
		}
		resp, err := c.Do(req)
		if err != nil {
			said <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		said <- fmt.Sprint(string(b), err)
	}()
	return said
}

// A stranger asks a pod's sidecar, or one of its containers is restarted, and the pod is
// deleted before the helper has found out that it was not: the deletion's hook holds its
// session, whatever the first one hears.
func TestSidecarIsAskedBeforeTheDeletion(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Policy = quick })
	s.lagging()
	s.start()
	c := s.connect(s.serve())
	s.says(s.prestop("sidecar"), "serving hooks")
	before := s.asked("get", "pods")
	stranger := s.asks()
	s.eventually("the API is asked for the pod", func() error {
		if s.asked("get", "pods") == before {
			return errors.New("it is not yet")
		}
		return nil
	})
	s.delete(60)
	deletion := s.asks()
	if got := <-stranger; !strings.HasPrefix(got, string(lifecycle.NotTerminating)) {
		t.Errorf("the first hook ends with %q", got)
	}
	s.reaches(lifecycle.Withdrawing, 1)
	s.withdraw()
	c.end(t)
	if got := <-deletion; !strings.HasPrefix(got, string(lifecycle.Drained)) {
		t.Errorf("the deletion's hook ends with %q", got)
	}
}
