package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/conndrain/conndrain/e2e/build"
)

// pluginDir is a folder with kubectl-conndrain in it, made of this source.
var pluginDir = sync.OnceValues(func() (string, error) {
	ctx := context.Background()
	module, err := build.ModuleDir(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(scratch, "plugin")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := os.Symlink("kubectl-conndrain", filepath.Join(dir, "kubectl_complete-conndrain")); err != nil {
		return "", err
	}
	return dir, build.Binaries(ctx, filepath.Dir(module), dir, "./cmd/kubectl-conndrain")
})

// said is what a command has printed, and its exit code.
type said struct {
	stdout, stderr string
	code           int
}

func (s said) String() string { return s.stdout + s.stderr }

// plugin is `kubectl conndrain ...` in the space.
func (s space) plugin(ctx context.Context, args ...string) *exec.Cmd {
	s.Helper()
	args = append([]string{"conndrain"}, args...)
	return s.withPlugin(ctx, append(args, "--kubeconfig", s.c.Kubeconfig())...)
}

// withPlugin is a kubectl that finds the plugin.
func (s space) withPlugin(ctx context.Context, args ...string) *exec.Cmd {
	s.Helper()
	dir, err := pluginDir()
	if err != nil {
		s.Fatal(err)
	}
	cmd := s.c.Outside.Command(ctx, filepath.Join(s.c.Bin(), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	return cmd
}

// conndrain runs `kubectl conndrain ...` to its end.
func (s space) conndrain(args ...string) said {
	s.Helper()
	cmd := s.plugin(s.Context(), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() < 0) {
		s.Fatalf("kubectl conndrain %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return said{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}
