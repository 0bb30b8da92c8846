package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// innerEnv marks the process that runs inside of a user namespace of its own.
const innerEnv = "CONNDRAIN_DEMO_INNER"

// inner says whether this is that process.
func inner() bool { return os.Getenv(innerEnv) != "" }

// privileged says whether this process may make network namespaces as it is.
func privileged() bool {
	var data [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	for _, c := range []uint{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN} {
		if data[c/32].Effective&(1<<(c%32)) == 0 {
			return false
		}
	}
	return true
}

// reexec runs the same command as root of a user namespace of its own, which
// gives it the right to network namespaces and none to the machine. It waits for
// it. The child dies with this process, even where that is killed, and its
// namespaces with it.
func reexec(ctx context.Context, cmd *cobra.Command, o options) error {
	// The kernel takes the end of the thread for the parent's death.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	child := exec.CommandContext(ctx, "/proc/self/exe", o.arguments(cmd)...)
	child.Args[0] = os.Args[0]
	child.Env = append(os.Environ(), innerEnv+"=1")
	child.Stdout, child.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
		// The terminal's signals reach this process alone, which passes them on once.
		Setpgid:   true,
		Pdeathsig: syscall.SIGKILL,
	}
	child.Cancel = func() error { return child.Process.Signal(syscall.SIGTERM) }
	child.WaitDelay = 800 * time.Millisecond
	if err := child.Start(); err != nil {
		if ctx.Err() != nil {
			return cancelled(cmd, o)
		}
		return forbidden(err)
	}
	err := child.Wait()
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil && exited && exit.ExitCode() == int(errCancelled):
		return errCancelled // it has said so
	case ctx.Err() != nil:
		return cancelled(cmd, o)
	case err == nil:
		return nil
	case exited && exit.Exited():
		return ExitError(exit.ExitCode())
	case exited && signalOf(exit) == syscall.SIGPIPE:
		// Nobody reads on, as in `demo | head`: this process would end like that too.
		return ExitError(128 + int(syscall.SIGPIPE))
	}
	return fmt.Errorf("run in a user namespace: %w", err)
}

// signalOf is the signal that ended a process, or -1.
func signalOf(e *exec.ExitError) syscall.Signal {
	if status, ok := e.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal()
	}
	return -1
}

// forbidden explains why there is no user namespace, or one without rights.
func forbidden(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno
	}
	steps := []string{"run the demo as root (sudo)"}
	for _, v := range []struct{ path, bad, fix string }{
		{"kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"},
		{"kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"},
		{"user/max_user_namespaces", "0", "user.max_user_namespaces=10000"},
		{"user/max_net_namespaces", "0", "user.max_net_namespaces=10000"},
	} {
		if b, err := os.ReadFile("/proc/sys/" + v.path); err == nil && strings.TrimSpace(string(b)) == v.bad {
			steps = append(steps, "or allow it: sysctl -w "+v.fix)
		}
	}
	if len(steps) == 1 {
		steps = append(steps, "or where this is a container, outside of it")
	}
	return fmt.Errorf("this machine does not let user %d make a user and network namespace (%w): %s", os.Geteuid(), err, strings.Join(steps, ", "))
}
