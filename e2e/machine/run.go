package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// rebootStatus is what systemd-nspawn exits with when the machine asked for a reboot.
const rebootStatus = 133

// supervisorSyscalls are what a kubelet and its runtime need beyond nspawn's own list.
const supervisorSyscalls = "@keyring bpf"

// Run boots the machine and blocks until it is powered off, booting it again after each reboot. It returns nil after a
// power-off and an error after anything else. The caller is a process of its own, alone in a mount namespace: Run mounts
// the machine's file tree there, so that the host never sees it. Needs root, systemd-nspawn and overlayfs.
func Run(s Spec) error {
	group, err := OwnGroup(s.Cgroup)
	if err != nil {
		return err
	}
	if err := group.Enter(); err != nil {
		return err
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s/work", s.Rootfs, s.Upper(), s.Dir)
	if err := unix.Mount("overlay", s.root(), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount file tree of machine %s: %w", s.Name, err)
	}
	// nspawn makes folders below /run and cannot remove them when they are on a disk: here they end with this process
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run of machine %s: %w", s.Name, err)
	}
	console, err := os.OpenFile(s.ConsoleLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open console of machine %s: %w", s.Name, err)
	}
	defer console.Close()

	for {
		err := boot(s, console)
		var exit *exec.ExitError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &exit) && exit.ExitCode() == rebootStatus:
			continue
		default:
			return fmt.Errorf("run machine %s: %w; its console is in %s", s.Name, err, s.ConsoleLog())
		}
	}
}

// boot runs the machine once, from its init to its end.
func boot(s Spec, console *os.File) error {
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started the process ends
	defer runtime.UnlockOSThread()
	cmd := exec.Command("systemd-nspawn", nspawnArgs(s)...)
	cmd.Env = append(os.Environ(), "SYSTEMD_NSPAWN_API_VFS_WRITABLE=network") // a node sets its own network sysctls
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer os.Remove(s.pidFile())
	if err := os.WriteFile(s.pidFile(), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("write pid of machine: %w", err)
	}
	return cmd.Wait()
}

// nspawnArgs keeps nspawn away from the host's own systemd (there may be none), journal, resolver and time zone.
func nspawnArgs(s Spec) []string {
	args := []string{
		"--quiet", "--directory=" + s.root(), "--machine=" + s.Name, "--hostname=" + s.Host, "--boot",
		"--register=no", "--keep-unit", "--console=pipe",
		"--link-journal=no", "--resolv-conf=off", "--timezone=off",
		"--network-namespace-path=" + s.NetNS,
		"--capability=all", "--system-call-filter=" + supervisorSyscalls,
		"--bind=/dev/kmsg", // the kubelet's OOM watcher wants it
		"--bind=" + s.LogDir() + ":/var/log/cluster",
	}
	for _, b := range s.Binds {
		option := "--bind="
		if b.ReadOnly {
			option = "--bind-ro="
		}
		args = append(args, option+b.Source+":"+b.Target)
	}
	return args
}
