package build

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// An entry is there whole or not at all.
func TestEntryThatFailsIsNotKept(t *testing.T) {
	e := entry{cache: t.TempDir(), name: "thing", key: "1"}
	broken := errors.New("broken")
	write := func(dir string) error { return os.WriteFile(filepath.Join(dir, "file"), nil, 0o644) }
	err := e.fill(func(dir string) error { return errors.Join(write(dir), broken) })
	if !errors.Is(err, broken) || e.exists() {
		t.Errorf("fill: %v, entry exists: %v", err, e.exists())
	}
	err = e.fill(func(dir string) error {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("folder of the second try has %v (%v)", left, err)
		}
		return write(dir)
	})
	if err != nil || !e.exists() {
		t.Errorf("fill: %v, entry exists: %v", err, e.exists())
	}
}

func TestKeyChangesWithContentAndWords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go.mod")
	key := func(content string, words ...string) string {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		k, err := keyOf([]string{file}, words...)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := key("a", "v1")
	if first != key("a", "v1") {
		t.Error("the same has another key")
	}
	for name, other := range map[string]string{"content": key("b", "v1"), "word": key("a", "v2"), "split": key("a", "v", "1")} {
		if first == other {
			t.Errorf("another %s has the same key", name)
		}
	}
}

func TestSpaceThatIsMissingIsNamed(t *testing.T) {
	dir := t.TempDir()
	err := RequireSpace(dir, 1<<40, "building everything")
	if err == nil || !strings.Contains(err.Error(), "building everything needs") || !strings.Contains(err.Error(), dir) {
		t.Errorf("require more than there is: %v", err)
	}
	if err := RequireSpace(dir, 0, "nothing"); err != nil {
		t.Error(err)
	}
}

func TestModuleIsFoundFromInsideOnly(t *testing.T) {
	dir, err := ModuleDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "tools/kubernetes/go.mod")); err != nil {
		t.Error(err)
	}
	t.Chdir(t.TempDir())
	if _, err := ModuleDir(t.Context()); err == nil || !strings.Contains(err.Error(), "run this inside of e2e/") {
		t.Errorf("outside: %v", err)
	}
}

// The versions that the cluster reports are those that are built.
func TestVersionsAreThoseOfTheModules(t *testing.T) {
	dir, err := ModuleDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]string{
		"kubernetes": "k8s.io/kubernetes " + KubernetesVersion + "\n",
		"containerd": "github.com/containerd/containerd/v2 " + ContainerdVersion,
	} {
		b, err := os.ReadFile(filepath.Join(dir, "tools", tool, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), want) {
			t.Errorf("go.mod of %s has no %q", tool, want)
		}
	}
}

func TestBuildLinesThatNameAPackageAreCounted(t *testing.T) {
	var compiled atomic.Int64
	var other strings.Builder
	readBuild(strings.NewReader(`go: downloading example.com/x v1.0.0
internal/abi
k8s.io/kubernetes/pkg/kubelet
# example.com/broken
./main.go:1:1: undefined: x
`), &compiled, &other)
	if compiled.Load() != 2 || !strings.Contains(other.String(), "undefined: x") || strings.Contains(other.String(), "download") {
		t.Errorf("%d packages, the rest is %q", compiled.Load(), other.String())
	}
}
