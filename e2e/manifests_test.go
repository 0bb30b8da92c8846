package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/build"
	"github.com/conndrain/conndrain/e2e/cluster"
	"github.com/conndrain/conndrain/e2e/product"
	"github.com/conndrain/conndrain/e2e/traffic"
)

// What a user installs, as it is: the images of make image, install.yaml, and each example in a namespace that takes
// nothing but restricted pods. A download that is older than its pod's deletion is served to its end, and the pod goes
// right after it.
func TestInstallAndExamples(t *testing.T) {
	t.Parallel()
	c := startFor(t, cluster.Options{Nodes: 2})
	module, err := build.ModuleDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(module)
	loadProduct(t, c, root)
	manifests := filepath.Join(root, "manifests")
	system := space{T: t, c: c, name: product.Namespace}
	// first with the one component that wants something of the node, then as it is, which is an update too
	for _, args := range [][]string{
		{"--kustomize", overlay(t, manifests, "node-shutdown")}, {"--filename", filepath.Join(manifests, "install.yaml")},
	} {
		system.kubectl(append([]string{"apply"}, args...)...)
		system.kubectl("rollout", "status", "daemonset/conndrain-node", "--timeout", limit.String())
	}

	t.Run("components", func(t *testing.T) { dryRun(t, c, manifests) })
	examples, err := filepath.Glob(filepath.Join(manifests, "examples", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range examples {
		if filepath.Base(example) == "client.yaml" {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(example), ".yaml"), func(t *testing.T) {
			t.Parallel()
			runExample(t, c, example)
		})
	}
}

// loadProduct gives every node the images that make image makes.
func loadProduct(t *testing.T, c *cluster.Cluster, root string) {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", "-source", root, "-out", out, "-arch", runtime.GOARCH)
	cmd.Dir = filepath.Join(root, "e2e", "tools", "image")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make images: %v\n%s", err, b)
	}
	for _, name := range []string{"conndrain-node", "prestop", "example"} {
		if err := c.LoadImage(t.Context(), filepath.Join(out, name+"-"+runtime.GOARCH+".tar")); err != nil {
			t.Fatal(err)
		}
	}
}

// dryRun lets the API server check everything with each component.
func dryRun(t *testing.T, c *cluster.Cluster, manifests string) {
	components, err := filepath.Glob(filepath.Join(manifests, "components", "*"))
	if err != nil || len(components) == 0 {
		t.Fatalf("components are %q, %v", components, err)
	}
	for _, component := range components {
		name := filepath.Base(component)
		args := []string{"--kubeconfig", c.Kubeconfig(), "apply", "--dry-run=server", "--kustomize", overlay(t, manifests, name)}
		out, err := c.Outside.Command(t.Context(), filepath.Join(c.Bin(), "kubectl"), args...).CombinedOutput()
		// the one whose type no cluster has by itself
		missing := `no matches for kind "PodMonitor"`
		if name == "podmonitor" && err != nil && strings.Contains(string(out), missing) && strings.Count(string(out), "error") <= 1 {
			continue
		}
		if err != nil {
			t.Errorf("component %s: %v\n%s", name, err, out)
		}
	}
}

// overlay is a folder for kubectl with everything and one component.
func overlay(t *testing.T, manifests, component string) string {
	t.Helper()
	dir := t.TempDir()
	base, err := filepath.Rel(dir, manifests) // kustomize wants it relative
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%s]\ncomponents: [%s/components/%s]\n", base, base, component)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// runExample is the experiment that this project began with, as a user would do it.
func runExample(t *testing.T, c *cluster.Cluster, example string) {
	s := newSpace(t, c)
	restricted := "pod-security.kubernetes.io/enforce=restricted"
	s.kubectl("label", "namespace", s.name, restricted)
	s.kubectl("apply", "--filename", example)
	s.kubectl("rollout", "status", "deployment/web", "--timeout", limit.String())
	s.kubectl("apply", "--filename", filepath.Join(filepath.Dir(example), "client.yaml"))
	pod := s.serving("web")

	begin := time.Now()
	s.kubectl("delete", "pod", pod.Name, "--wait=false")
	s.event(pod, "Draining", s.clientAddress(t.Context())+":", "port 8080/tcp (older than the drain)")
	if story := s.kubectl("describe", "pod", pod.Name); !hasAll(story, []string{"Draining", "conndrain-node"}) {
		t.Errorf("kubectl describe pod does not say what the pod waits for:\n%s", story)
	}
	s.gone(pod)
	took := time.Since(begin)

	got := s.report("client")
	want := traffic.Report{Protocol: "http", Started: 1, Completed: 1, Bytes: 8 << 20}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("client's report (-want +got):\n%s", diff)
	}
	s.event(pod, "Drained", "The last session has ended")
	t.Logf("pod went %s after its deletion", took)
	if took > 80*time.Second { // the download takes 20 s, the time is up after 110 s
		t.Errorf("pod went %s after its deletion, not after its last session", took)
	}
}

// serving blocks until a pod of the app has a session on its HTTP port, and returns the pod.
func (s space) serving(app string) corev1.Pod {
	s.Helper()
	var found corev1.Pod
	s.eventually("a pod of "+app+" has a session", func(ctx context.Context) error {
		pods, err := s.pods(ctx, app)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			all, err := s.entries(ctx, pod.Spec.NodeName, "tcp", pod.Status.PodIP, portOf("http"))
			if err != nil {
				return err
			}
			for _, e := range all {
				if client := s.clientAddress(ctx); client != "" && hasAll(string(e), []string{"ESTABLISHED", "src=" + client + " "}) {
					found = pod
					return nil
				}
			}
		}
		return errors.New("none has one")
	})
	return found
}

// clientAddress is that of the pod "client"; empty while it has none.
func (s space) clientAddress(ctx context.Context) string {
	pod, err := s.c.Client.CoreV1().Pods(s.name).Get(ctx, "client", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return pod.Status.PodIP
}
