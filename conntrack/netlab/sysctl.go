//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// errHost is what Sysctl answers inside of the host's own network namespace.
var errHost = errors.New("this is the host's own network namespace: its values are not ours to change")

// Sysctl writes a value of n, such as
// "net/netfilter/nf_conntrack_tcp_timeout_established". Values that n shares
// with the host are read-only inside of n, and where n is the host's namespace
// nothing is written.
func (n *Namespace) Sysctl(name, value string) error {
	p, err := sysctlPath(name)
	if err != nil {
		return err
	}
	err = n.Do(func() error {
		if err := notHost(); err != nil {
			return err
		}
		// No O_CREATE: a name that the kernel does not know is an error.
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return fmt.Errorf("set %s to %s: %w", name, value, err)
	}
	return nil
}

// ReadSysctl reads a value of n without its line end.
func (n *Namespace) ReadSysctl(name string) (string, error) {
	p, err := sysctlPath(name)
	if err != nil {
		return "", err
	}
	var b []byte
	err = n.Do(func() error {
		b, err = os.ReadFile(p)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read %s: %w", name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// HasIPv6 says whether the kernel has IPv6.
func (n *Namespace) HasIPv6() bool {
	_, err := n.ReadSysctl("net/ipv6/conf/all/forwarding")
	return !errors.Is(err, fs.ErrNotExist)
}

// Forward makes n a router for IPv4 and, where the kernel has it, IPv6.
func (n *Namespace) Forward() error {
	if err := n.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
		return err
	}
	if !n.HasIPv6() {
		return nil
	}
	return n.Sysctl("net/ipv6/conf/all/forwarding", "1")
}

// sysctlPath refuses all but values of the network, which alone belong to a
// network namespace.
func sysctlPath(name string) (string, error) {
	if p := path.Join("/proc/sys", name); strings.HasPrefix(p, "/proc/sys/net/") {
		return p, nil
	}
	return "", fmt.Errorf("%q is no value of a network namespace: use a name that begins with net/", name)
}

// hostNamespace is the network namespace in which the process began.
var hostNamespace = namespaceID("/proc/self/ns/net")

// notHost returns an error where the calling thread is inside of the namespace
// in which the process began or of that of the system's first process.
func notHost() error {
	here := namespaceID("/proc/thread-self/ns/net")
	// Without rights the first process's namespace cannot be read; then it cannot
	// be entered either.
	if here == (unix.Stat_t{}) || same(here, hostNamespace) || same(here, namespaceID("/proc/1/ns/net")) {
		return errHost
	}
	return nil
}

func namespaceID(p string) unix.Stat_t {
	var st unix.Stat_t
	if unix.Stat(p, &st) != nil {
		return unix.Stat_t{}
	}
	return st
}

func same(a, b unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }
