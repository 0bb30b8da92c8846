package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/e2e/cluster"
)

// namespaces are network namespaces that processes are in, by the kernel's cookie of each, with one of the processes. The
// inode that /proc shows will not do: it is given to the next namespace as soon as it is free.
type namespaces map[uint64]string

// readNamespaces are those of all processes of this machine.
func readNamespaces(t *testing.T) namespaces {
	t.Helper()
	return namespacesOf(t, func(string) bool { return true })
}

// clusterNamespaces are those of processes that are in a cluster's cgroups; its supervisors are in this machine's own.
func clusterNamespaces(t *testing.T) namespaces {
	t.Helper()
	all := namespacesOf(t, func(proc string) bool {
		b, err := os.ReadFile(filepath.Join(proc, "cgroup"))
		return err == nil && strings.Contains(string(b), "/conndrain-e2e-")
	})
	own, err := cookieOf("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	delete(all, own)
	return all
}

func namespacesOf(t *testing.T, want func(proc string) bool) namespaces {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	byInode := map[string]string{}
	for _, proc := range procs {
		if inode, err := os.Readlink(filepath.Join(proc, "ns/net")); err == nil && want(proc) {
			byInode[inode] = proc
		}
	}
	all := namespaces{}
	for _, proc := range byInode {
		if cookie, err := cookieOf(filepath.Join(proc, "ns/net")); err == nil {
			all[cookie] = filepath.Base(proc) // an error: the process has ended
		}
	}
	return all
}

// cookieOf asks the kernel for a namespace's cookie, which only a socket inside of it can be asked for.
func cookieOf(path string) (cookie uint64, err error) {
	err = cluster.NamespaceAt(path).Do(func() error {
		socket, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open socket: %w", err)
		}
		defer unix.Close(socket)
		if cookie, err = unix.GetsockoptUint64(socket, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil {
			return fmt.Errorf("get cookie of network namespace: %w", err)
		}
		return nil
	})
	return cookie, err
}
