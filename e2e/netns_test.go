package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

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

// podNamespace is the network namespace of a pod, as long as it runs.
func (s space) podNamespace(pod corev1.Pod) cluster.Namespace {
	s.Helper()
	group := "/conndrain-e2e-" + s.c.Options.Name + "-" + pod.Spec.NodeName
	for _, process := range namespacesOf(s.T, func(proc string) bool {
		b, err := os.ReadFile(filepath.Join(proc, "cgroup"))
		return err == nil && strings.Contains(string(b), group)
	}) {
		ns, found := cluster.NamespaceAt(filepath.Join("/proc", process, "ns/net")), false
		err := ns.Do(func() error {
			addresses, err := net.InterfaceAddrs()
			found = slices.ContainsFunc(addresses, func(a net.Addr) bool {
				return strings.HasPrefix(a.String(), pod.Status.PodIP+"/")
			})
			return err
		})
		if err == nil && found { // an error: the process has ended
			return ns
		}
	}
	s.Fatalf("no process on %s is in a network namespace with the address %s", pod.Spec.NodeName, pod.Status.PodIP)
	return cluster.Namespace{}
}

// clusterNamespaces are those of processes that are in the cgroups of a cluster of these tests; its supervisors are in this
// machine's own.
func clusterNamespaces(t *testing.T) namespaces {
	t.Helper()
	others := othersClusters(t)
	all := namespacesOf(t, func(proc string) bool {
		b, err := os.ReadFile(filepath.Join(proc, "cgroup"))
		return err == nil && strings.Contains(string(b), "/conndrain-e2e-") && !others(string(b))
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
