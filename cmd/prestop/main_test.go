package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/lifecycle"
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
		{"what comes after it stands", "--shell --grace 60s", env(), read{"", 60 * s, 15 * s}, "shell"},
		{"two mistakes", "--grace soon --shell", env(), read{"", 30 * s, 15 * s}, "shell"},
		{"an argument", "now", env(), read{"", 30 * s, 15 * s}, `"now"`},
		{"what comes after it is read", "now --grace 60s", env(), read{"", 60 * s, 15 * s}, `"now"`},
		{"and has its mistakes", "--learn false --grace nonsense", env(), read{"", 30 * s, 15 * s}, `write --learn=false, with no space` + "\n" + `--grace: "nonsense"`},
		{"a bad node", "--node host:port", env("HOST_IP", "10.0.0.1"), read{"10.0.0.1", 30 * s, 15 * s}, "1 to 65535"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parse(strings.Fields(tc.args), tc.env)
			if diff := cmp.Diff(tc.want, read{c.Node, c.Grace, c.FallbackSleep}); diff != "" {
				t.Errorf("config (-want +got):\n%s", diff)
			}
			if (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want one that says %q", err, tc.err)
			}
		})
	}
}

func TestParseTheRest(t *testing.T) {
	type read struct {
		HostIP, Node, Token, Listen string
		Ports                       []uint16
		Sidecar, Unlearned          bool
	}
	for _, tc := range []struct {
		name string
		args string
		env  func(string) string
		want read
		err  string
	}{
		{"nothing", "", env(), read{Listen: ":10942"}, ""},
		{"flags", "--port 8080,9090 --token-file /t", env(), read{Token: "/t", Listen: ":10942", Ports: []uint16{8080, 9090}}, ""},
		{"environment", "", env("CONNDRAIN_PORT", "80", "CONNDRAIN_TOKEN_FILE", "/t", "CONNDRAIN_LISTEN", "[::1]:99"), read{Token: "/t", Listen: "[::1]:99", Ports: []uint16{80}}, ""},
		{"the node's address beside its helper", "--node other", env("HOST_IP", "10.0.0.1", "CONNDRAIN_NODE", "host:99"), read{HostIP: "10.0.0.1", Node: "other", Listen: ":10942"}, ""},
		{"sidecar", "sidecar --listen :99", env(), read{Sidecar: true, Listen: ":99"}, ""},
		{"without learning", "sidecar --learn=false", env(), read{Sidecar: true, Unlearned: true, Listen: ":10942"}, ""},
		{"without learning, by the environment", "sidecar", env("CONNDRAIN_LEARN", "0"), read{Sidecar: true, Unlearned: true, Listen: ":10942"}, ""},
		{"with learning, which wins", "sidecar --learn", env("CONNDRAIN_LEARN", "false"), read{Sidecar: true, Listen: ":10942"}, ""},
		{"learning in a wrong word", "sidecar --learn=often", env(), read{Sidecar: true, Listen: ":10942"}, "--learn"},
		{"a bad port", "--port 8080,http", env(), read{Listen: ":10942"}, "1 to 65535"},
		{"port zero", "", env("CONNDRAIN_PORT", "0"), read{Listen: ":10942"}, "CONNDRAIN_PORT"},
		{"a bad address", "sidecar --listen 99999", env(), read{Sidecar: true, Listen: ":10942"}, "--listen"},
		{"sidecar, and something else", "sidecar now", env(), read{Sidecar: true, Listen: ":10942"}, `"now"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := parse(strings.Fields(tc.args), tc.env)
			got := read{c.HostIP, c.Node, c.TokenFile, c.listen, c.Ports, c.sidecar, c.NoLearning}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("command (-want +got):\n%s", diff)
			}
			if (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("error %v, want one that says %q", err, tc.err)
			}
		})
	}
}

func TestUsageOutsideOfKubernetes(t *testing.T) {
	var stderr bytes.Buffer
	if code := execute(t.Context(), []string{"--grace", "soon"}, env(), io.Discard, &stderr); code != codeUsage {
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
		env("KUBERNETES_SERVICE_HOST", "10.96.0.1", "HOST_IP", "127.0.0.1:1", "CONNDRAIN_GRACE", "2s"), io.Discard, &stderr)
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
	var stdout bytes.Buffer
	if code := execute(t.Context(), []string{"--help"}, env(), &stdout, io.Discard); code != codeDone {
		t.Errorf("exit %d", code)
	}
	words := []string{"HOST_IP", hook.ServiceHost, hook.DrainPath, hook.HealthPath, strconv.Itoa(lifecycle.SidecarPort)}
	for _, o := range new(command).options() {
		words = append(words, "--"+o.flag, o.env)
	}
	for _, word := range words {
		if !strings.Contains(stdout.String(), word) {
			t.Errorf("the usage does not name %s", word)
		}
	}
}

func TestVersion(t *testing.T) {
	var stdout bytes.Buffer
	if code := execute(t.Context(), []string{"--version"}, env(), &stdout, io.Discard); code != codeDone || stdout.String() != "prestop "+version+"\n" {
		t.Errorf("exit %d, %q", code, &stdout)
	}
}

// A sidecar whose port is taken says so.
func TestSidecarWithoutAPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var stderr bytes.Buffer
	if code := execute(t.Context(), []string{"sidecar", "--listen", l.Addr().String()}, env(), io.Discard, &stderr); code != codeError {
		t.Errorf("exit %d, want %d", code, codeError)
	}
	if !strings.Contains(stderr.String(), "address already in use") {
		t.Errorf("said %q", &stderr)
	}
}

// build returns the program as it is released.
func build(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "prestop")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return out
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
	info, err := os.Stat(build(t))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > most {
		t.Errorf("%d bytes, at most %d", info.Size(), most)
	}
}
