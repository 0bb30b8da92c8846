// Package docs only tests that what is written in this folder and in the README is there, and that what is there is written.
package docs

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// words are the first groups of all matches in the files that the patterns name.
func words(t *testing.T, expression string, patterns ...string) []string {
	t.Helper()
	found := map[string]bool{}
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %q, %v", pattern, files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			collect(found, expression, b)
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func collect(found map[string]bool, expression string, b []byte) {
	for _, m := range regexp.MustCompile(expression).FindAllSubmatch(b, -1) {
		found[string(m[1])] = true
	}
}

const reference = "reference.md"

func TestMetricsAreWritten(t *testing.T) {
	there := words(t, `"(conndrain_[a-z_]+)"`, "../lifecycle/node/*.go")
	if diff := cmp.Diff(there, words(t, "(?m)^\\| `(conndrain_[a-z_]+)", reference)); diff != "" {
		t.Errorf("metrics (-there +written):\n%s", diff)
	}
	for _, name := range words(t, `(conndrain_[a-z_]+)`, "*.md", "../README.md") {
		if !slices.Contains(there, name) {
			t.Errorf("there is no metric %s", name)
		}
	}
}

func TestEventsAreWritten(t *testing.T) {
	there := words(t, `reason[A-Za-z]+ += "([A-Z][A-Za-z]+)"`, "../lifecycle/node/events.go")
	if diff := cmp.Diff(there, words(t, "(?m)^\\| `([A-Z][a-z]+[A-Za-z]*)`[^|]*\\|", "../README.md")); diff != "" {
		t.Errorf("Events (-there +written):\n%s", diff)
	}
}

func TestAnnotationsAreWritten(t *testing.T) {
	there := words(t, `AnnotationPrefix \+ "([a-z-]+)"`, "../lifecycle/*.go")
	if diff := cmp.Diff(there, words(t, "(?m)^\\| `conndrain.io/([a-z-]+)`", "../README.md")); diff != "" {
		t.Errorf("annotations (-there +written):\n%s", diff)
	}
	for _, name := range words(t, `conndrain\.io/([a-z-]+)`, "*.md", "../README.md") {
		if !slices.Contains(there, name) {
			t.Errorf("there is no annotation %s", name)
		}
	}
}

func TestFlagsAreWritten(t *testing.T) {
	there := map[string]bool{}
	for _, program := range []string{"prestop", "conndrain-node"} {
		help, err := exec.CommandContext(t.Context(), "go", "run", "../cmd/"+program, "--help").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", program, err, help)
		}
		collect(there, `(?m)^ +(?:-., )?(--[a-z-]+)`, help)
	}
	for _, everywhere := range []string{"--help", "--version"} {
		delete(there, everywhere)
	}
	written := words(t, "(?m)^\\| `(--[a-z-]+)`", reference)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(there)), written); diff != "" {
		t.Errorf("flags (-there +written):\n%s", diff)
	}
}

// What a document leads to is there.
func TestLinks(t *testing.T) {
	for _, file := range []string{"../README.md", "../CONTRIBUTING.md", "../e2e/README.md"} {
		checkLinks(t, file)
	}
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		checkLinks(t, file)
	}
}

func checkLinks(t *testing.T, file string) {
	t.Helper()
	for _, link := range words(t, `\]\(([^):#]+)(?:#[^)]*)?\)`, file) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(file), link)); err != nil {
			t.Errorf("%s leads to %s, which is not there", file, link)
		}
	}
}
