package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrDown is returned for a machine that has no init running: powered off, or between two boots.
var ErrDown = errors.New("machine is down")

// SearchPath is what commands inside a machine are looked up in.
const SearchPath = "/opt/kubernetes:/opt/containerd:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Supervise starts the program at the path supervisor, which calls Run with the spec, as a process of its own that goes
// on when its parent ends. Its output is the machine's console log.
func Supervise(s Spec, supervisor string) (*exec.Cmd, error) {
	group, err := OwnGroup(s.Cgroup)
	if err != nil {
		return nil, err
	}
	if err := s.recordGroup(group); err != nil {
		return nil, err
	}
	console, err := os.OpenFile(s.ConsoleLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open console of machine %s: %w", s.Name, err)
	}
	defer console.Close()
	cmd := exec.Command(supervisor, s.Dir)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start machine %s: %w", s.Name, err)
	}
	return cmd, nil
}

// Init is the process id, as the host sees it, of the machine's init. It returns ErrDown when there is none.
func (s Spec) Init() (int, error) {
	b, err := os.ReadFile(s.pidFile())
	if err != nil {
		return 0, ErrDown
	}
	pid := strings.TrimSpace(string(b))
	children, err := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	if err != nil {
		return 0, ErrDown
	}
	for child := range strings.FieldsSeq(string(children)) {
		comm, err := os.ReadFile(filepath.Join("/proc", child, "comm"))
		if err == nil && strings.TrimSpace(string(comm)) == "systemd" {
			return strconv.Atoi(child)
		}
	}
	return 0, ErrDown
}

// Command runs a program inside the machine, in all of its namespaces. It returns ErrDown when the machine is down.
func (s Spec) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	init, err := s.Init()
	if err != nil {
		return nil, fmt.Errorf("run %s on %s: %w", name, s.Host, err)
	}
	// through env, because nsenter looks a program up in the path of the host
	enter := []string{"--target", strconv.Itoa(init), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup",
		"--root", "--wd", "--", "/usr/bin/env", "-i", "PATH=" + SearchPath, "HOME=/root", "LC_ALL=C.UTF-8", name}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...), nil
}

// BootID is the kernel's name of this boot as the machine sees it: nspawn makes a new one for each.
func (s Spec) BootID(ctx context.Context) (string, error) {
	cmd, err := s.Command(ctx, "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("read boot id of %s: %w", s.Host, err)
	}
	return strings.TrimSpace(string(out)), nil
}
