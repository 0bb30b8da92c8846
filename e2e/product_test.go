package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/cluster"
	"github.com/conndrain/conndrain/e2e/product"
)

// metricsPort is where helpers tell their figures.
const metricsPort = 10941

// installed is the shared cluster with the product on it.
var installed = sync.OnceValues(func() (*cluster.Cluster, error) {
	c, err := shared()
	if err != nil {
		return nil, err
	}
	return c, product.Install(context.Background(), c)
})

// productSpace is a space of the shared cluster, with the product installed.
func productSpace(t *testing.T) space {
	t.Helper()
	c, err := installed()
	if err != nil {
		t.Fatal(err)
	}
	return newSpace(t, c)
}

// event blocks until there is an Event on the pod with the reason and all the words, and returns its text.
func (s space) event(pod corev1.Pod, reason string, words ...string) string {
	s.Helper()
	var text string
	s.eventually("Event "+reason, func(ctx context.Context) error {
		list, err := s.c.Client.CoreV1().Events(s.name).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.uid=" + string(pod.UID),
		})
		if err != nil {
			return fmt.Errorf("list Events: %w", err)
		}
		var all []string
		for _, e := range list.Items {
			all = append(all, e.Reason+": "+e.Message)
			if e.Reason == reason && hasAll(e.Message, words) {
				text = e.Message
				return nil
			}
		}
		return fmt.Errorf("none of %q says %q", all, words)
	})
	return text
}

func hasAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// metric is a figure of the helper on a node; one that it does not have is 0.
func (s space) metric(node, name string) float64 {
	s.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: s.c.Outside.Dial, DisableKeepAlives: true}}
	address := net.JoinHostPort(s.node(node).Addresses[0], strconv.Itoa(metricsPort))
	req, err := http.NewRequestWithContext(s.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		s.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		s.Fatalf("get metrics: %v", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatalf("get metrics: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.Fatalf("read metric %s: %v", line, err)
			}
			return v
		}
	}
	return 0
}
