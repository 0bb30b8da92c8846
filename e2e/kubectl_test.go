package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/product"
)

// These tests are kubectl conndrain as a person uses it, on a real cluster.

// drainStatus is what programs may rely on of `status --output json`.
type drainStatus struct {
	Namespace, Pod, UID, Phase string
	RemainingSeconds           *float64
	Open, Lost                 *int
	Peers                      []struct {
		Client     string
		AgeSeconds *float64
	}
}

// drainsOf are the drains of the pod in what `status --output json` has printed.
func (s space) drainsOf(out said, pod corev1.Pod) []drainStatus {
	s.Helper()
	var report struct {
		Nodes []struct {
			Drains []drainStatus `json:"drains"`
			Error  string        `json:"error"`
		} `json:"nodes"`
	}
	if err := json.Unmarshal([]byte(out.stdout), &report); err != nil {
		s.Fatalf("read %s: %v", out, err)
	}
	var all []drainStatus
	for _, n := range report.Nodes {
		if n.Error != "" {
			s.Errorf("a helper could not be asked: %s", n.Error)
		}
		for _, d := range n.Drains {
			if d.UID == string(pod.UID) {
				all = append(all, d)
			}
		}
	}
	return all
}

func TestKubectlStatusAndRelease(t *testing.T) {
	t.Parallel()
	s := openStream(t, 900, 10*time.Minute)
	name := "pod/" + s.pod.Name
	if got := s.conndrain("status", name, "-n", s.name); got.code != 0 || !strings.Contains(got.stderr, "is not terminating") {
		t.Errorf("status of a pod that serves: exit %d\n%s", got.code, got)
	}
	s.kubectl("delete", "pod", s.pod.Name, "--wait=false")
	s.event(s.pod, "Draining", "1 session")

	from := s.client.Status.PodIP + ":"
	for _, args := range [][]string{{name, "-n", s.name}, {"n1"}, {"-A"}, {"-n", s.name}} {
		got := s.conndrain(append([]string{"status"}, args...)...)
		if got.code != 0 || !hasAll(got.stdout, []string{"n1", s.name, s.pod.Name, "draining", from}) {
			t.Errorf("status %q: exit %d\n%s", args, got.code, got)
		}
		t.Logf("status %q\n%s", args, got)
	}
	got := s.drainsOf(s.conndrain("status", "-A", "--output", "json"), s.pod)
	if len(got) != 1 {
		t.Fatalf("drains %+v, want one", got)
	}
	d := got[0]
	if d.Open == nil || *d.Open != 1 || d.Lost == nil || *d.Lost != 0 || d.Phase != "draining" || d.RemainingSeconds == nil || *d.RemainingSeconds > 890 || *d.RemainingSeconds < 500 {
		t.Errorf("drain %+v, want one session and some 890 s left", d)
	}
	if len(d.Peers) != 1 || !strings.HasPrefix(d.Peers[0].Client, from) || d.Peers[0].AgeSeconds != nil {
		t.Errorf("peers %+v, want the client's, older than the drain", d.Peers)
	}
	if elsewhere := s.drainsOf(s.conndrain("status", "n2", "-o", "json"), s.pod); len(elsewhere) != 0 {
		t.Errorf("on the other node: %+v", elsewhere)
	}

	// Somebody watches while somebody else lets the pod go.
	watch := s.plugin(t.Context(), "status", name, "-n", s.name, "--watch")
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var talk strings.Builder
	watch.Stderr = &talk
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "draining") {
	}
	begin := time.Now()
	release := s.conndrain("release", name, "-n", s.name, "--reason", "the client is stuck")
	answered := time.Since(begin)
	if release.code != 0 || !hasAll(release.stdout, []string{s.pod.Name, "released with 1 session open", from}) {
		t.Errorf("release: exit %d\n%s", release.code, release)
	}
	who := strings.TrimSpace(s.kubectl("auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"))
	text := s.event(s.pod, "DrainReleased", who, "the client is stuck")
	s.gone(s.pod)
	gone := time.Since(begin)
	t.Logf("release answered after %s, the pod was gone after %s: %s", answered, gone, text)
	if gone > 30*time.Second { // the hook returns within a second, the container and its pod a moment later
		t.Errorf("pod was gone %s after its release", gone)
	}
	var rest strings.Builder
	for lines.Scan() {
		rest.WriteString(lines.Text() + "\n")
	}
	if err := watch.Wait(); err != nil || !strings.Contains(talk.String(), "is gone") {
		t.Errorf("watch ended with %v and %q\n%s", err, talk.String(), &rest)
	}
	if got := s.report("client"); got.Cut != 1 {
		t.Errorf("report %+v, want the stream cut", got)
	}
}

func TestKubectlExitCodes(t *testing.T) {
	t.Parallel()
	s := productSpace(t)
	for _, tc := range []struct {
		args  string
		code  int
		words []string
	}{
		{"status n2", 0, nil},
		{"status -n " + s.name, 0, nil},
		{"version", 0, []string{"kubectl-conndrain"}},
		{"status pod/none -n " + s.name, 1, []string{"no pod none in namespace " + s.name}},
		{"status n9", 1, []string{"node n9 has no helper"}},
		{"status -A --helper-namespace default", 1, []string{"no helper in namespace default"}},
		{"release pod/none -n " + s.name, 1, []string{"no pod none"}},
		{"release --all -n " + s.name, 0, []string{"Nothing is draining"}},
		{"release", 2, []string{"say what to release"}},
		{"status --no-such-flag", 2, []string{"unknown flag"}},
	} {
		if got := s.conndrain(strings.Fields(tc.args)...); got.code != tc.code || !hasAll(got.String(), tc.words) {
			t.Errorf("%s: exit %d, want %d that says %q\n%s", tc.args, got.code, tc.code, tc.words, got)
		}
	}
}

// kubectl completes the plugin's words by a link of its own name.
func TestKubectlCompletes(t *testing.T) {
	t.Parallel()
	s := productSpace(t)
	out, err := s.withPlugin(t.Context(), "__complete", "conndrain", "status", "--kubeconfig", s.c.Kubeconfig(), "").Output()
	if err != nil || !hasAll(string(out), []string{"n1\n", "n2\n", "pod/\n"}) {
		t.Errorf("completion of status: %v\n%s", err, out)
	}
}

// Whoever may see the helpers but not run commands in them is told what it takes.
func TestKubectlWithoutTheRight(t *testing.T) {
	t.Parallel()
	s := productSpace(t)
	got := s.conndrain("status", "-A", "--as", "stranger")
	if got.code != 1 || !hasAll(got.stderr, []string{"list the helpers", "forbidden", "pods", product.Namespace}) {
		t.Errorf("without any right: exit %d\n%s", got.code, got)
	}
	rbac := s.c.Client.RbacV1()
	meta := metav1.ObjectMeta{Namespace: product.Namespace, Name: s.name}
	_, err := rbac.Roles(product.Namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rbac.RoleBindings(product.Namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "viewer-" + s.name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(
			rbac.RoleBindings(product.Namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{}),
			rbac.Roles(product.Namespace).Delete(ctx, meta.Name, metav1.DeleteOptions{}),
		); err != nil {
			t.Error(err)
		}
	})
	got = s.conndrain("status", "-A", "--as", "viewer-"+s.name)
	if got.code != 1 || !hasAll(got.stdout, []string{"n1", "n2", "create and get on pods/exec in namespace " + product.Namespace}) {
		t.Errorf("without the right to exec: exit %d\n%s", got.code, got)
	}
	t.Logf("%s", got)
}
