package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/lifecycle/hook"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestParse(t *testing.T) {
	type read struct {
		Node            string
		Grace, Fallback time.Duration
	}
	const s = time.Second
	for _, tc := range []struct {
		name string
		args string
		env  func(string) string
		want read
		err  string
	}{
		{"nothing", "", env(), read{"", 30 * s, 15 * s}, ""},
		{"flags", "--node 10.0.0.1 --grace 60s --fallback-sleep=5s", env(), read{"10.0.0.1", 60 * s, 5 * s}, ""},
		{"the downward API", "", env("HOST_IP", "fd00::1"), read{"fd00::1", 30 * s, 15 * s}, ""},
		{"environment", "", env("HOST_IP", "10.0.0.1", "CONNDRAIN_NODE", "10.0.0.2:99", "CONNDRAIN_GRACE", "2m", "CONNDRAIN_FALLBACK_SLEEP", "1s"), read{"10.0.0.2:99", 120 * s, s}, ""},
		{"flags win", "--node 10.0.0.3", env("CONNDRAIN_NODE", "10.0.0.2"), read{"10.0.0.3", 30 * s, 15 * s}, ""},
		{"what can be read stands", "--grace soon", env("HOST_IP", "10.0.0.1", "CONNDRAIN_FALLBACK_SLEEP", "-1s"), read{"10.0.0.1", 30 * s, 15 * s}, "CONNDRAIN_FALLBACK_SLEEP"},
		{"an unknown flag", "--shell", env(), read{"", 30 * s, 15 * s}, "shell"},
		{"an argument", "now", env(), read{"", 30 * s, 15 * s}, `"now"`},
		{"a bad node", "--node host:port", env("HOST_IP", "10.0.0.1"), read{"10.0.0.1", 30 * s, 15 * s}, "1 to 65535"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parse(strings.Fields(tc.args), tc.env, &bytes.Buffer{})
			if diff := cmp.Diff(tc.want, read{c.Node, c.Grace, c.FallbackSleep}); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
			if (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want one that says %q", err, tc.err)
			}
		})
	}
}

func TestUsageOutsideOfKubernetes(t *testing.T) {
	var stderr bytes.Buffer
	if code := execute(t.Context(), []string{"--grace", "soon"}, env(), &stderr); code != codeUsage {
		t.Errorf("exit %d, want %d", code, codeUsage)
	}
	if !strings.Contains(stderr.String(), "--grace") {
		t.Errorf("said %q, which does not name the flag", &stderr)
	}
}

// In a container a mistake must neither hold the pod longer nor fail the hook.
func TestMistakeInAContainer(t *testing.T) {
	var stderr bytes.Buffer
	begin := time.Now()
	code := execute(t.Context(), []string{"--grace", "soon"},
		env("KUBERNETES_SERVICE_HOST", "10.96.0.1", "HOST_IP", "127.0.0.1:1", "CONNDRAIN_GRACE", "2s"), &stderr)
	if code != codeDone {
		t.Errorf("exit %d, want 0", code)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %s of a grace period of 2s", took)
	}
	if !strings.Contains(stderr.String(), "--grace") {
		t.Errorf("said %q, which does not name the flag", &stderr)
	}
}

func TestHelp(t *testing.T) {
	var stderr bytes.Buffer
	if code := execute(t.Context(), []string{"--help"}, env(), &stderr); code != codeDone {
		t.Errorf("exit %d", code)
	}
	for _, word := range []string{"--node", "--grace", "--fallback-sleep", "HOST_IP", hook.ServiceHost} {
		if !strings.Contains(stderr.String(), word) {
			t.Errorf("the usage does not name %s", word)
		}
	}
}

// The binary is copied into every image, so it stays small, and links nothing of
// Kubernetes.
func TestBinary(t *testing.T) {
	deps, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(deps)) {
		if strings.HasPrefix(dep, "k8s.io/") || strings.HasPrefix(dep, "sigs.k8s.io/") {
			t.Errorf("links %s", strings.TrimSpace(dep))
		}
	}
	const most = 8 << 20
	out := filepath.Join(t.TempDir(), "prestop")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > most {
		t.Errorf("%d bytes, at most %d", info.Size(), most)
	}
}
