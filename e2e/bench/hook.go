package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/conndrain/conndrain/e2e/build"
)

// starts is how often a program is started.
const starts = 100

// hook measures what is in every pod: the binary, its start, and one that waits in a real pod.
func hook(ctx context.Context, b *bench) error {
	module, err := build.ModuleDir(ctx)
	if err != nil {
		return err
	}
	out := filepath.Join(b.site.dir, "hook")
	if err := build.Binaries(ctx, filepath.Dir(module), out, "./cmd/prestop"); err != nil {
		return err
	}
	if err := build.Binaries(ctx, module, out, "./bench/hello"); err != nil {
		return err
	}
	prestop, hello := filepath.Join(out, "prestop"), filepath.Join(out, "hello")
	info, err := os.Stat(prestop)
	if err != nil {
		return err
	}
	b.add(atMost("prestop, binary", info.Size(), 8e6, megabytes))

	argument := "--version"
	if exec.CommandContext(ctx, prestop, argument).Run() != nil {
		argument = "--help"
	}
	var ours, theirs sample
	for range starts {
		took, err := start(ctx, prestop, argument)
		if err != nil {
			return err
		}
		ours = append(ours, took)
		if took, err = start(ctx, hello); err != nil {
			return err
		}
		theirs = append(theirs, took)
	}
	b.add(atMost("prestop, start to exit of `prestop "+argument+"`, median", ours.median(), 15*time.Millisecond, span).
		with(" of %d; beside it a static hello world: %s", starts, span(theirs.median())))

	peak, err := b.waitingHook(ctx)
	if err != nil {
		return err
	}
	b.add(atMost("prestop, peak RSS while it waits in a pod", peak, 10e6, megabytes))
	return nil
}

// start runs a program and returns what that took, from its start until it is gone.
func start(ctx context.Context, program string, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{} // a container has few
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("run %s: %w", filepath.Base(program), err)
	}
	return time.Since(begin), nil
}

// waitingHook is the most that a hook in a pod with some sessions has in memory in its first polls.
func (b *bench) waitingHook(ctx context.Context) (peak int64, err error) {
	const namespace, sessions, polls = "hook", 50, 25 * time.Second
	remove, err := b.site.space(ctx, namespace)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	pods, err := b.hooked(ctx, namespace, 1, nil)
	if err != nil {
		return 0, err
	}
	held, err := b.site.connect(ctx, pods[0], sessions)
	if err != nil {
		return 0, err
	}
	defer held.abandon()
	if err := b.site.remove(ctx, pods[0]); err != nil {
		return 0, err
	}
	var running process
	err = await(ctx, "the hook runs", func(context.Context) (err error) {
		running, err = oneProcess(pods[0].UID, "prestop")
		return err
	})
	if err != nil {
		return 0, err
	}
	b.say("a hook waits for %d sessions", sessions)
	if err := pause(ctx, polls); err != nil {
		return 0, err
	}
	now, err := running.memory()
	return now.peak, err
}
