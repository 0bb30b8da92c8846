package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

// askFrom is one request from a network namespace, with a token.
func (s *scene) askFrom(ns *netlab.Namespace, token string, r lifecycle.DrainRequest) (lifecycle.DrainAnswer, int) {
	s.Helper()
	body, err := json.Marshal(r)
	must(s.T, err)
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, "http://"+s.address(), bytes.NewReader(body))
	must(s.T, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: ns.Dial, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	must(s.T, err)
	defer resp.Body.Close()
	var a lifecycle.DrainAnswer
	must(s.T, json.NewDecoder(resp.Body).Decode(&a))
	if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
		s.Error("a refusal that is final")
	}
	return a, resp.StatusCode
}

// P13: a pod on its node's network is served for the ports that it names, and only
// with a token that proves it; never for all that the node has open.
func TestP13HostNetwork(t *testing.T) {
	t.Parallel()
	s := prepareScene(t, netlab.LabOptions{}, func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 8443 }, func(c *Config) { c.Policy = quick })
	// The pod that is there keeps its own address, beside one that has the node's.
	host := newPod(s.lab, "uid-9")
	host.Name, host.Spec.HostNetwork = "proxy-1", true
	host.Status.PodIPs = []corev1.PodIP{{IP: s.lab.NodeAddr.String()}}
	host.Spec.Containers[0].Ports[0].ContainerPort = 8443
	pods := s.api.CoreV1().Pods(namespace)
	host, err := pods.Create(t.Context(), host, metav1.CreateOptions{})
	must(t, err)
	var reviews atomic.Int32
	s.api.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		reviews.Add(1)
		r := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if r.Spec.Token == "good" && len(r.Spec.Audiences) == 1 {
			r.Status = review()
			r.Status.User.Username = "system:serviceaccount:" + namespace + ":proxy"
		}
		return true, r, nil
	})
	s.start()
	for token, says := range map[string]string{
		"":     "mount a projected service account token with the audience conndrain",
		"bad":  "proves no hostNetwork pod of this node",
		"good": "conndrain.io/ports",
	} {
		s.eventually("an answer that says what is missing", func() error {
			a, status := s.askFrom(s.lab.Node, token, lifecycle.DrainRequest{})
			if status != http.StatusServiceUnavailable || !strings.Contains(a.Message, says) || a.Released() {
				return errors.New(a.Message)
			}
			return nil
		})
	}
	if n := len(s.helper.drains.list()); n != 0 {
		t.Errorf("%d drains", n)
	}

	now, grace := metav1.Now(), int64(60)
	host.Annotations = map[string]string{"conndrain.io/ports": "http"}
	host.DeletionTimestamp, host.DeletionGracePeriodSeconds = &now, &grace
	_, err = pods.Update(t.Context(), host, metav1.UpdateOptions{})
	must(t, err)
	own := s.serveAndConnect(s.lab.Node, netip.AddrPortFrom(s.lab.NodeAddr, 8443))
	others := s.serveAndConnect(s.lab.Node, netip.AddrPortFrom(s.lab.NodeAddr, 9443))
	var a lifecycle.DrainAnswer
	hostReaches := func(phase lifecycle.Phase, open int) {
		t.Helper()
		s.eventually("draining", func() error {
			var status int
			a, status = s.askFrom(s.lab.Node, "good", lifecycle.DrainRequest{})
			if status != http.StatusOK || a.Phase != phase.String() || a.Open == nil || *a.Open != open {
				return errors.New("phase is " + a.Phase + a.Message)
			}
			return nil
		})
	}
	hostReaches(lifecycle.Draining, 1)
	// Ports that are taken away again do not make the whole node's sessions count.
	host = host.DeepCopy()
	host.Annotations = nil
	_, err = pods.Update(t.Context(), host, metav1.UpdateOptions{})
	must(t, err)

	// A pod with an address of its own is that one, whatever token it has.
	if a, status := s.askFrom(s.lab.Pod, "good", lifecycle.DrainRequest{}); status != http.StatusOK || a.RemainingSeconds != nil {
		t.Errorf("%d %+v: a token made a pod another one", status, a)
	}
	if n := reviews.Load(); n > 3 {
		t.Errorf("%d reviews", n)
	}
	d := s.drainOf("uid-9")
	own.end(t)
	select {
	case <-d.released:
	case <-time.After(patience):
		t.Fatalf("not released: %+v", d.now())
	}
	if got := d.now(); got.reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", got.reason, lifecycle.Drained)
	}
	others.end(t)
}

func (s *scene) drainOf(uid string) *drain {
	s.Helper()
	for _, d := range s.helper.drains.list() {
		d.mu.Lock()
		found := string(d.pod.UID) == uid
		d.mu.Unlock()
		if found {
			return d
		}
	}
	s.Fatalf("no drain of %s", uid)
	return nil
}

// serveAndConnect is a client's connection to a server that listens in a namespace.
func (s *scene) serveAndConnect(ns *netlab.Namespace, address netip.AddrPort) session {
	s.Helper()
	l, err := ns.Listen(s.Context(), "tcp", address.String())
	must(s.T, err)
	s.Cleanup(func() { _ = l.Close() })
	return s.connectTo(l, address)
}
