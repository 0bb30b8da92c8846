package build

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// progressEvery is how often a long build says how far it is.
const progressEvery = 15 * time.Second

// goBuild is one run of the Go compiler: static binaries of packages of the module in dir.
type goBuild struct {
	dir      string // of the module
	packages []string
	out      string // a folder, or a file when there is one package
	tags     string
	ldflags  string
	nice     bool // long: let others have the machine, and say how far it is
}

// run builds, and prints every progressEvery how many packages are done when the build is a long one.
func (b goBuild) run(ctx context.Context, say func(string, ...any)) error {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags", b.tags, "-ldflags", "-s -w " + b.ldflags, "-o", b.out}
	if !b.nice {
		cmd := goCommand(ctx, b.dir, append(args, b.packages...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", strings.Join(b.packages, " "), err, out)
		}
		return nil
	}

	deps, err := goCommand(ctx, b.dir, append([]string{"list", "-deps", "-tags", b.tags}, b.packages...)...).Output()
	if err != nil {
		return fmt.Errorf("list packages of %s: %w\n%s", filepath.Base(b.dir), err, stderrOf(err))
	}
	total := strings.Count(string(deps), "\n")

	cmd := goCommand(ctx, b.dir, append(append(args, "-v"), b.packages...)...)
	cmd.Path, err = exec.LookPath("nice")
	if err != nil {
		return fmt.Errorf("find nice: %w; install coreutils", err)
	}
	cmd.Args = append([]string{"nice", "-n", "15"}, cmd.Args...)
	return watchBuild(cmd, filepath.Base(b.dir), total, say)
}

func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	return cmd
}

// watchBuild runs a `go build -v`, which prints a line for each package that it compiles. Packages that the compiler's
// own cache holds print none, so the count may stay below the total.
func watchBuild(cmd *exec.Cmd, name string, total int, say func(string, ...any)) error {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("build %s: %w", name, err)
	}

	var compiled atomic.Int64
	var said strings.Builder
	read := make(chan struct{})
	go func() {
		defer close(read)
		readBuild(stderr, &compiled, &said)
	}()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-read:
			done = true
		case <-tick.C:
			say("%s: %d of %d packages compiled after %s", name, compiled.Load(), total, time.Since(start).Round(time.Second))
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", name, err, said.String())
	}
	return nil
}

// readBuild counts the lines that name a package and keeps the others: downloads and errors.
func readBuild(r io.Reader, compiled *atomic.Int64, other *strings.Builder) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "go: downloading"):
		case !strings.ContainsAny(line, " #:"):
			compiled.Add(1)
		default:
			fmt.Fprintln(other, line)
		}
	}
	_, _ = io.Copy(io.Discard, r) // a line too long for the scanner must not block the build
}

func stderrOf(err error) string {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(exit.Stderr)
	}
	return ""
}
