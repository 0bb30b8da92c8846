package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCopy(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // a container that is restarted copies again
		if code := execute(t.Context(), []string{"copy", dir}, env(), io.Discard, &bytes.Buffer{}); code != codeDone {
			t.Fatalf("exit %d", code)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "prestop"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the copy has %d bytes, this program %d", len(got), len(want))
	}
	info, err := os.Stat(filepath.Join(dir, "prestop"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o755 {
		t.Errorf("the copy has mode %o: every user has to run it", info.Mode().Perm())
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(1, len(entries)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// It fails loudly, in a container too: a pod must not start without its hook.
func TestCopyThatDoesNotWork(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
	}{
		{[]string{"copy"}, codeUsage},
		{[]string{"copy", ""}, codeUsage},
		{[]string{"copy", "a", "b"}, codeUsage},
		{[]string{"copy", "/nowhere"}, codeError},
	} {
		args := tc.args
		var stderr bytes.Buffer
		if code := execute(t.Context(), args, env("KUBERNETES_SERVICE_HOST", "10.96.0.1"), io.Discard, &stderr); code != tc.code {
			t.Errorf("%q: exit %d, want %d", args, code, tc.code)
		}
		if !strings.Contains(stderr.String(), "prestop: copy: ") {
			t.Errorf("%q: said %q", args, &stderr)
		}
	}
}

func TestCopyHelp(t *testing.T) {
	var stdout bytes.Buffer
	if code := execute(t.Context(), []string{"copy", "--help"}, env(), &stdout, io.Discard); code != codeDone {
		t.Errorf("exit %d", code)
	}
	if stdout.String() != usage {
		t.Errorf("said %q", &stdout)
	}
}
