//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// finished is a process that has ended.
type finished struct {
	took   time.Duration
	stdout []byte
	code   int
}

// runIn runs a whole process inside of n, from its start until it is gone. An
// exit code is no error. The process dies with this one.
func runIn(ctx context.Context, n *netlab.Namespace, env []string, args ...string) (finished, error) {
	var f finished
	err := n.Do(func() error {
		cmd, stderr := command(ctx, env, args)
		var stdout bytes.Buffer
		cmd.Stdout = &stdout
		began := time.Now()
		err := cmd.Run()
		f.took = time.Since(began)
		f.stdout = stdout.Bytes()
		f.code = cmd.ProcessState.ExitCode()
		return explain(err, args, stderr)
	})
	return f, err
}

func command(ctx context.Context, env, args []string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr := new(bytes.Buffer)
	cmd.Stderr = stderr
	return cmd, stderr
}

// explain leaves exit codes to the caller and adds to any other error what the
// process had to say.
func explain(err error, args []string, stderr *bytes.Buffer) error {
	if exit, isExit := errors.AsType[*exec.ExitError](err); isExit && exit.Exited() && exit.ExitCode() != 1 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// peakRSS reads the largest resident size that a process has had so far, in
// bytes. The figure that wait4 gives would count its parent's as well.
func peakRSS(pid int) (int64, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	kib, err := strconv.ParseInt(strings.TrimSuffix(field(path, "VmHWM"), " kB"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read VmHWM of %s: %w", path, err)
	}
	return kib << 10, nil
}

// cpuTime is what all threads of a process have used so far.
func cpuTime(pid int) (time.Duration, error) {
	tasks := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return 0, err
	}
	var sum time.Duration
	for _, t := range threads {
		var ns int64
		if _, err := fmt.Sscan(firstLine(tasks+"/"+t.Name()+"/schedstat"), &ns); err != nil {
			return 0, fmt.Errorf("read schedstat: %w", err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}
