package build

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const rootfsSuite = "bookworm"

// rootfsPackages is what a node is made of, next to the programs that we build: an init with logind and D-Bus, a runtime
// with its network plugins, both packet filters, and conntrack to look at it all.
var rootfsPackages = []string{
	"systemd", "systemd-sysv", "dbus", "libpam-systemd", "polkitd",
	"runc", "containernetworking-plugins", "nftables", "iptables", "conntrack",
	"iproute2", "procps", "kmod", "ethtool", "socat", "util-linux-extra", "ca-certificates",
}

// rootfsEmptied are files that belong to one machine: each node that boots from the file tree makes its own.
var rootfsEmptied = []string{"etc/machine-id", "etc/resolv.conf"}

// makeRootfs fills dir/rootfs with Debian. It takes about two minutes and 350 MB.
func makeRootfs(ctx context.Context, dir string, say func(string, ...any)) error {
	root := filepath.Join(dir, "rootfs")
	cmd := exec.CommandContext(ctx, "nice", "-n", "15", "debootstrap", "--variant=minbase",
		"--include="+strings.Join(rootfsPackages, ","), rootfsSuite, root)
	out := &stepWriter{say: say, said: map[string]bool{}}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("debootstrap %s: %w\n%s", rootfsSuite, err, out.tail.String())
	}
	if err := os.RemoveAll(filepath.Join(root, "var/cache/apt/archives")); err != nil {
		return fmt.Errorf("remove package files: %w", err)
	}
	if err := os.Remove(filepath.Join(root, "etc/hostname")); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove host name of the file tree: %w", err)
	}
	for _, name := range rootfsEmptied {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o644); err != nil {
			return fmt.Errorf("empty %s of the file tree: %w", name, err)
		}
	}
	return nil
}

// stepWriter says each of debootstrap's larger steps once and keeps everything for an error.
type stepWriter struct {
	say  func(string, ...any)
	tail bytes.Buffer
	said map[string]bool
}

func (w *stepWriter) Write(p []byte) (int, error) {
	w.tail.Write(p)
	for line := range strings.Lines(string(p)) {
		// "I: Retrieving libc6 2.36" is one of hundreds: its first word is what a reader wants to know
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == "I:" && strings.HasSuffix(words[1], "ing") && !w.said[words[1]] {
			w.said[words[1]] = true
			w.say("rootfs: %s", strings.ToLower(words[1]))
		}
	}
	return len(p), nil
}
