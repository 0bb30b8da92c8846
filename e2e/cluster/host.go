package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/e2e/build"
)

// diskGigabytes is what a cluster of a few nodes may write.
const diskGigabytes = 3

// checkHost returns everything that this machine lacks for a cluster, in words that say what to do.
func checkHost() error {
	if os.Geteuid() != 0 {
		return errors.New("it needs root: run it with sudo")
	}
	var errs []error
	for _, c := range []struct {
		bit  uint
		name string
		why  string
	}{
		{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "to mount and to make namespaces"},
		{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "to wire network namespaces"},
		{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "to enter the machines' namespaces"},
		{unix.CAP_MKNOD, "CAP_MKNOD", "to unpack Debian"},
	} {
		if !hasCapability(c.bit) {
			errs = append(errs, fmt.Errorf("it needs %s, %s: run it in a container or machine that grants it", c.name, c.why))
		}
	}
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		errs = append(errs, fmt.Errorf("list file systems: %w", err))
	}
	if !strings.Contains(string(filesystems), "\toverlay\n") {
		errs = append(errs, errors.New("it needs overlayfs in the kernel: try modprobe overlay"))
	}
	// the folder that stateRoot is in, because it is not there yet
	errs = append(errs, build.RequireSpace(filepath.Dir(stateRoot), diskGigabytes, "a cluster"))
	return errors.Join(errs...)
}

// hasCapability reads this process's effective capabilities.
func hasCapability(bit uint) bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			mask, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && mask&(1<<bit) != 0
		}
	}
	return false
}
