package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/cluster"
	"github.com/conndrain/conndrain/e2e/product"
	"github.com/conndrain/conndrain/e2e/traffic"
)

// What a hook does where its helper or conntrack fail it, on a cluster of its own: first what concerns one pod, side by
// side, then what concerns all of the node.
func TestFallback(t *testing.T) {
	t.Parallel()
	c := startFor(t, cluster.Options{Nodes: 2})
	if err := product.Install(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Run("of one pod", func(t *testing.T) {
		for _, test := range []struct {
			name string
			run  func(*testing.T, space)
		}{
			{"P14 the data path bypasses conntrack", testP14},
			{"P32 a mesh", testP32},
			{"P29 a policy drops the helper's port", testP29Drop},
			{"P29 something else answers on the helper's port", testP29Proxy},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t, newSpace(t, c))
			})
		}
	})
	t.Run("P20 the helper is killed in the middle", func(t *testing.T) { testP20Killed(t, newSpace(t, c)) })
	t.Run("P20 no helper from the start, and one in the end", func(t *testing.T) { testP20Absent(t, newSpace(t, c)) })
}

// held is a pod on n1 that is being deleted, with one stream of a client on n2.
type held struct {
	space
	pod   corev1.Pod
	begin time.Time
}

// hold starts the server and the stream, straight to the pod, calls before, and deletes the pod.
func (s space) hold(srv server, lasts time.Duration, before func(corev1.Pod)) held {
	s.Helper()
	srv.name, srv.node, srv.onTerm, srv.hook, srv.quiet = "web", "n1", "exit", true, true
	change := srv.change
	srv.change = func(spec *corev1.PodSpec) {
		// What a hook goes by that no helper ever answers.
		main := &spec.Containers[0]
		main.Env = append(main.Env, corev1.EnvVar{Name: "CONNDRAIN_GRACE", Value: fmt.Sprintf("%ds", srv.grace)})
		if change != nil {
			change(spec)
		}
	}
	pod, _ := s.serve(srv)
	if before != nil {
		before(pod)
	}
	s.download("client", "n2", traffic.Client{
		Protocol: "websocket", Address: addressOf(pod.Status.PodIP, "websocket"),
		Transfer: traffic.Transfer{Bytes: 1 << 20, Duration: lasts}, Count: 1,
	})
	s.eventually("the client runs", func(ctx context.Context) error {
		client, err := s.c.Client.CoreV1().Pods(s.name).Get(ctx, "client", metav1.GetOptions{})
		if err == nil && client.Status.Phase != corev1.PodRunning {
			err = errors.New("it is " + string(client.Status.Phase))
		}
		return err
	})
	h := held{s, pod, time.Now()}
	s.kubectl("delete", "pod", pod.Name, "--wait=false")
	return h
}

// complete waits until the client has got everything and the pod is gone after that, and long before its deadline.
func (h held) complete(budget time.Duration) {
	h.Helper()
	want := traffic.Report{Protocol: "websocket", Started: 1, Completed: 1, Bytes: 1 << 20}
	if diff := cmp.Diff(want, h.report("client")); diff != "" {
		h.Errorf("report (-want +got):\n%s", diff)
	}
	h.gone(h.pod)
	took := time.Since(h.begin)
	h.Logf("gone %s after its deletion", took)
	if took > budget {
		h.Errorf("gone %s after its deletion, want less than %s", took, budget)
	}
}

// rule adds a rule to a base chain of n1, which the test's end takes away.
func (s space) rule(kind, hook, priority string, rule ...string) {
	s.Helper()
	table := "inet conndrain-test-" + s.name
	script := fmt.Sprintf("add table %s\nadd chain %s c { type %s hook %s priority %s; }\nadd rule %s c %s\n",
		table, table, kind, hook, priority, table, strings.Join(rule, "\nadd rule "+table+" c "))
	if _, err := s.node("n1").Run(s.Context(), "sh", "-c", "printf '"+script+"' | nft -f -"); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if _, err := s.node("n1").Run(context.Background(), "sh", "-c", "nft delete table "+table); err != nil {
			s.Error(err)
		}
	})
}

// Nothing of the pod is tracked: its sockets decide, and the node says so once.
func testP14(t *testing.T, s space) {
	h := s.hold(server{grace: 90}, 20*time.Second, func(pod corev1.Pod) {
		// The connections that showed that its Service works: one whose end is not tracked any more stays in the table.
		s.eventually("no session is left", func(ctx context.Context) error {
			all, err := s.entries(ctx, "n1", "tcp", pod.Status.PodIP, portOf("http"))
			for _, e := range all {
				if !strings.Contains(string(e), "TIME_WAIT") && !strings.Contains(string(e), "CLOSE ") {
					return fmt.Errorf("%s", e)
				}
			}
			return err
		})
		s.rule("filter", "prerouting", "raw", "ip saddr "+pod.Status.PodIP+" notrack", "ip daddr "+pod.Status.PodIP+" notrack")
	})
	text := h.event(h.pod, "Draining", "for 1 session")
	t.Log(text)
	h.eventually("the node is known to be blind", func(context.Context) error {
		if n := h.metric("n1", "conndrain_node_blind"); n != 1 {
			return fmt.Errorf("conndrain_node_blind is %v", n)
		}
		return nil
	})
	h.complete(60 * time.Second)
	h.event(h.pod, "Drained", "The last session has ended")
}

// A client of a mesh is the proxy's on the pod's side; the proxy's own connection to the application is nobody's.
func testP32(_ *testing.T, s space) {
	h := s.hold(server{grace: 90, mesh: true}, 20*time.Second, nil)
	h.event(h.pod, "Draining", "for 1 session")
	h.complete(60 * time.Second)
	h.event(h.pod, "Drained", "The last session has ended")
}

func testP29Drop(_ *testing.T, s space) {
	h := s.hold(server{grace: 90}, 25*time.Second, func(pod corev1.Pod) {
		s.rule("filter", "prerouting", "raw", "ip saddr "+pod.Status.PodIP+" tcp dport 10940 drop")
	})
	h.complete(60 * time.Second)
}

// Another server answers for the helper: its 404 has not our header, as a mesh's 502 has not.
func testP29Proxy(_ *testing.T, s space) {
	h := s.hold(server{grace: 90, mesh: true}, 25*time.Second, func(pod corev1.Pod) {
		s.rule("nat", "prerouting", "dstnat", "ip saddr "+pod.Status.PodIP+" tcp dport 10940 redirect to :10941")
	})
	h.complete(60 * time.Second)
}

// The drain is resumed by the helper that takes the place of the one that was killed.
func testP20Killed(t *testing.T, s space) {
	h := s.hold(server{grace: 120}, 40*time.Second, nil)
	h.event(h.pod, "Draining", "for 1 session")
	h.kubectl("delete", "pods", "--namespace", product.Namespace, "--field-selector", "spec.nodeName=n1", "--force", "--grace-period=0")
	h.complete(100 * time.Second)
	text := h.event(h.pod, "Drained", "The last session has ended")
	t.Log(text)
}

// Without a helper the hook holds its pod by the pod's sockets; the session's end releases it, whoever is back by then.
func testP20Absent(t *testing.T, s space) {
	daemons := func(selector string) {
		t.Helper()
		s.kubectl("patch", "daemonset", "conndrain-node", "--namespace", product.Namespace, "--type=merge",
			"--patch", `{"spec":{"template":{"spec":{"nodeSelector":`+selector+`}}}}`)
	}
	helpers := func(ctx context.Context) (int, error) {
		list, err := s.c.Client.CoreV1().Pods(product.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, fmt.Errorf("list helpers: %w", err)
		}
		return len(list.Items), nil
	}
	h := s.hold(server{grace: 120}, 40*time.Second, func(corev1.Pod) {
		daemons(`{"no-such-label":"true"}`)
		s.eventually("the helpers are gone", func(ctx context.Context) error {
			n, err := helpers(ctx)
			if err == nil && n > 0 {
				err = fmt.Errorf("there are %d", n)
			}
			return err
		})
	})
	// For some seconds nobody but the hook itself holds the pod.
	for time.Since(h.begin) < 20*time.Second {
		if _, err := h.c.Client.CoreV1().Pods(h.name).Get(t.Context(), h.pod.Name, metav1.GetOptions{}); err != nil {
			t.Fatalf("%s after its deletion: %v", time.Since(h.begin), err)
		}
	}
	daemons(`{"no-such-label":null}`)
	h.complete(100 * time.Second)
	h.eventually("a helper is back on each node", func(ctx context.Context) error {
		n, err := helpers(ctx)
		if err == nil && n < len(h.c.Nodes) {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
}
