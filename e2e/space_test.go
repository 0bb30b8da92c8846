package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/cluster"
)

// space is a namespace of a cluster that one case has for itself.
type space struct {
	*testing.T
	c    *cluster.Cluster
	name string
}

// sharedSpace is a space of the shared cluster.
func sharedSpace(t *testing.T) space {
	t.Helper()
	c, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return newSpace(t, c)
}

// newSpace makes a namespace, which goes with the test. A test that fails names the folder with its cluster's logs.
func newSpace(t *testing.T, c *cluster.Cluster) space {
	t.Helper()
	namespaces := c.Client.CoreV1().Namespaces()
	ns, err := namespaces.Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "case-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("make namespace: %v", err)
	}
	s := space{T: t, c: c, name: ns.Name}
	t.Cleanup(func() {
		keepLogs(t, c)
		// its pods end later and beside other cases; the machine ends them all when the cluster stops
		if err := namespaces.Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace: %v", err)
		}
	})
	s.eventually("default service account", func(ctx context.Context) error {
		_, err := c.Client.CoreV1().ServiceAccounts(s.name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return s
}

func (s space) eventually(what string, try func(context.Context) error) {
	s.Helper()
	eventually(s.T, what, try)
}

// kubectl runs kubectl in the space and returns what it printed.
func (s space) kubectl(args ...string) string {
	s.Helper()
	args = append([]string{"--kubeconfig", s.c.Kubeconfig(), "--namespace", s.name}, args...)
	cmd := s.c.Outside.Command(s.Context(), filepath.Join(s.c.Bin(), "kubectl"), args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("kubectl %s: %v\n%s", strings.Join(args[4:], " "), err, out)
	}
	return string(out)
}

// node is a node of the space's cluster.
func (s space) node(name string) *cluster.Node {
	s.Helper()
	n, err := s.c.Node(name)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// pods lists the space's pods of an app.
func (s space) pods(ctx context.Context, app string) ([]corev1.Pod, error) {
	list, err := s.c.Client.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", app, err)
	}
	return list.Items, nil
}

// logs is what a pod's container has printed.
func (s space) logs(ctx context.Context, pod, container string) (string, error) {
	b, err := s.c.Client.CoreV1().Pods(s.name).GetLogs(pod, &corev1.PodLogOptions{Container: container}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("get logs of %s: %w", pod, err)
	}
	return string(b), nil
}

// gone blocks until the pod is no more.
func (s space) gone(pod corev1.Pod) {
	s.Helper()
	s.eventually("pod "+pod.Name+" is gone", func(ctx context.Context) error {
		_, err := s.c.Client.CoreV1().Pods(s.name).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("pod is there"), err)
	})
}

// hasLine is an error unless a line of the container's log has all the words.
func (s space) hasLine(ctx context.Context, pod, container string, words ...string) error {
	out, err := s.logs(ctx, pod, container)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			return nil
		}
	}
	return fmt.Errorf("no line of %s has %q:\n%s", container, words, out)
}
