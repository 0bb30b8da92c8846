package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/build"
	"github.com/conndrain/conndrain/e2e/cluster"
	"github.com/conndrain/conndrain/e2e/image"
)

// The product's images in every cluster of these tests.
const (
	nodeImage    = "conndrain.local/conndrain-node:e2e"
	prestopImage = "conndrain.local/prestop:e2e"

	productNamespace = "conndrain-system"
	metricsPort      = 10941
)

// installed is the shared cluster with the product on it.
var installed = sync.OnceValues(func() (*cluster.Cluster, error) {
	c, err := shared()
	if err != nil {
		return nil, err
	}
	return c, install(context.Background(), c)
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

// install applies the manifests, with images made of this source, and blocks until a helper is ready on every node.
func install(ctx context.Context, c *cluster.Cluster) error {
	module, err := build.ModuleDir(ctx)
	if err != nil {
		return err
	}
	root := filepath.Dir(module)
	dir, err := os.MkdirTemp("", "conndrain-install-")
	if err != nil {
		return fmt.Errorf("make folder of the installation: %w", err)
	}
	defer os.RemoveAll(dir)
	for name, pkg := range map[string]string{nodeImage: "./cmd/conndrain-node", prestopImage: "./cmd/prestop"} {
		program := "/" + filepath.Base(pkg)
		archive := filepath.Join(dir, filepath.Base(pkg)+".tar")
		spec := image.Spec{Name: name, Module: root, Packages: []string{pkg}, Entrypoint: []string{program}}
		if err := image.Build(ctx, spec, archive); err != nil {
			return err
		}
		if err := c.LoadImage(ctx, archive); err != nil {
			return err
		}
	}
	manifests, err := filepath.Rel(dir, filepath.Join(root, "manifests")) // kustomize wants it relative
	if err != nil {
		return fmt.Errorf("find the manifests: %w", err)
	}
	repository, tag, _ := strings.Cut(nodeImage, ":")
	overlay := fmt.Sprintf("resources: [%s]\nimages:\n- {name: ghcr.io/conndrain/conndrain-node, newName: %s, newTag: %s}\n", manifests, repository, tag)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		return fmt.Errorf("write overlay: %w", err)
	}
	for _, args := range [][]string{
		{"apply", "--kustomize", dir},
		{"--namespace", productNamespace, "rollout", "status", "daemonset/conndrain-node", "--timeout", limit.String()},
	} {
		args = append([]string{"--kubeconfig", c.Kubeconfig()}, args...)
		out, err := c.Outside.Command(ctx, filepath.Join(c.Bin(), "kubectl"), args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("install the product: %w\n%s", err, out)
		}
	}
	return nil
}

// addHook gives the first container of a pod our hook, from an image that is mounted as a volume.
func addHook(spec *corev1.PodSpec) {
	const volume = "conndrain"
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: prestopImage, PullPolicy: corev1.PullIfNotPresent},
	}})
	main := &spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/conndrain", ReadOnly: true})
	main.Env = append(main.Env, corev1.EnvVar{Name: "HOST_IP", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"},
	}})
	main.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		Exec: &corev1.ExecAction{Command: []string{"/conndrain/prestop"}},
	}}
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
