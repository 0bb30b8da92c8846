package e2e

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/cluster"
)

// These tests speak to helpers over the wire, as hooks of any release, strangers and people do.

const apiPort = 10940

// answer is what a helper says.
type answer struct {
	status     int
	header     http.Header
	Phase      string
	Reason     string
	Remaining  *float64 `json:"remainingSeconds"`
	Open       *int
	Message    string
	unreadable error
}

// ask posts a body to the helper of a node, from a namespace of the cluster.
func (s space) ask(from cluster.Namespace, node, body string) answer {
	s.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: from.Dial, DisableKeepAlives: true}, Timeout: limit}
	url := "http://" + net.JoinHostPort(s.node(node).Addresses[0], strconv.Itoa(apiPort)) + "/v1/drain"
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		s.Fatalf("ask helper: %v", err)
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatalf("ask helper: %v", err)
	}
	a.unreadable = json.Unmarshal(b, &a)
	return a
}

// Whoever is no pod of the node gets an answer that a hook takes for one that comes too early, and begins no drain.
func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 30})
	other, _ := d.serve(server{name: "other", node: "n2", onTerm: "exit", bare: true, grace: 1})
	for _, test := range []struct {
		name string
		from cluster.Namespace
	}{
		{"outside of the cluster", d.c.Outside},
		{"a pod of another node", d.podNamespace(other)},
		{"another node", d.node("n2").Namespace()},
	} {
		got := d.ask(test.from, "n1", `{"waitSeconds":10}`)
		if got.status != http.StatusServiceUnavailable || got.header.Get("Conndrain") == "" ||
			got.header.Get("Retry-After") == "" || got.Phase != "" || got.Message == "" {
			t.Errorf("%s is answered %+v, want 503 and why", test.name, got)
		}
	}
	if got := d.ask(d.podNamespace(d.pod), "n1", `{"waitSeconds":10}`); got.Reason != "NotTerminating" {
		t.Errorf("the node's own pod is answered %+v", got)
	}
}

// A hook that somebody runs by hand in a pod that serves on says so and returns.
func TestHookOfAServingPodReturns(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 300})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	begin := time.Now()
	out := d.kubectl("exec", d.pod.Name, "--", "/conndrain/prestop")
	if took := time.Since(begin); took > 5*3*time.Second {
		t.Errorf("the hook returned after %s, want 3 s", took)
	}
	if !hasAll(out, []string{"reason=NotTerminating", "helper=true"}) {
		t.Errorf("the hook does not say why it returned:\n%s", out)
	}
	c.open()
}

// P28: hooks of the first release, of later ones and such that say nothing are served over the wire, and all of one pod
// join the one drain.
func TestP28HooksOfAnyReleaseAreServed(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 120})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	d.event(d.pod, "Draining", sessions(1))
	pod := d.podNamespace(d.pod)
	for _, body := range []string{
		`{"elapsedSeconds":1.5,"waitSeconds":0.5,"version":"v0.1.0"}`,
		`{"waitSeconds":0.5,"later":{"a":[1,{"b":null}]},"version":"v9.0.0"}`,
		`{"elapsedSeconds":-5,"waitSeconds":-1}`,
		`{}`,
		``,
	} {
		got := d.ask(pod, "n1", body)
		if got.status != http.StatusOK || got.Phase != "draining" || got.Open == nil || *got.Open != 1 ||
			got.Remaining == nil || *got.Remaining <= 0 || *got.Remaining > 110 {
			t.Errorf("%q is answered %+v, want draining with 1 open", body, got)
		}
	}
	for _, body := range recordedRequests(t) {
		// what it tells of sockets is of another pod
		if got := d.ask(pod, "n1", body); got.status != http.StatusOK || got.Phase != "draining" || got.Remaining == nil {
			t.Errorf("%q is answered %+v, want draining", body, got)
		}
	}
	for body, want := range map[string]int{
		`nonsense`:                 http.StatusBadRequest,
		strings.Repeat(" ", 1<<20): http.StatusRequestEntityTooLarge,
		`{"waitSeconds":"1"}`:      http.StatusBadRequest,
	} {
		if got := d.ask(pod, "n1", body); got.status != want || got.Message == "" {
			t.Errorf("%.20q is answered %+v, want %d", body, got, want)
		}
	}
	c.Close()
	d.event(d.pod, "Drained", "The last session has ended")
	if n := d.events(d.pod, "Draining"); n != 1 {
		t.Errorf("%d Events say Draining, want one of one drain", n)
	}
	d.ends()
}

// recordedRequests are those of every release, as package lifecycle keeps them.
func recordedRequests(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../lifecycle/testdata/request-*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no request is recorded: %v", err)
	}
	var all []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	return all
}

// events is how many Events with the reason there are on the pod, each as often as it was said.
func (s space) events(pod corev1.Pod, reason string) int {
	s.Helper()
	list, err := s.c.Client.CoreV1().Events(s.name).List(s.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.uid=" + string(pod.UID) + ",reason=" + reason,
	})
	if err != nil {
		s.Fatalf("list Events: %v", err)
	}
	n := 0
	for _, e := range list.Items {
		n += max(1, int(e.Count))
	}
	return n
}
