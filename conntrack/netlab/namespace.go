//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrClosed is what a closed Namespace answers.
var ErrClosed = errors.New("network namespace is closed")

// errGoexit is what Do answers where f ended its goroutine.
var errGoexit = errors.New("the function ended its goroutine: do not call t.Fatal inside of Do")

// Namespace is a network namespace without a name. It lives as long as
// something is in it or holds it: this value until Close, sockets, processes.
// All methods are safe for concurrent use.
type Namespace struct {
	mu   sync.RWMutex
	file *os.File
}

// New makes a network namespace whose loopback is up and which knows no
// duplicate address detection and no router advertisements, so that IPv6
// addresses work at once. It needs CAP_SYS_ADMIN.
func New() (*Namespace, error) {
	n := &Namespace{}
	err := onFreshThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return rights(err)
		}
		f, err := os.OpenFile("/proc/thread-self/ns/net", os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		n.file = f
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("create network namespace: %w", err)
	}
	if err := n.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare network namespace: %w", err), n.Close())
	}
	return n, nil
}

// prepare sets what every namespace has from the start.
func (n *Namespace) prepare() error {
	if n.HasIPv6() {
		for _, name := range []string{"accept_dad", "dad_transmits", "accept_ra", "router_solicitations"} {
			if err := n.Sysctl("net/ipv6/conf/default/"+name, "0"); err != nil {
				return err
			}
		}
	}
	return n.up("lo")
}

// Do runs f on an OS thread that is inside n and waits for it. Sockets,
// listeners and child processes that f makes belong to n for good; goroutines
// that f starts do not run inside n. The thread is thrown away afterwards, so a
// child with a parent death signal dies with it. f must not call t.Fatal.
func (n *Namespace) Do(f func() error) error {
	n.mu.RLock()
	if n.file == nil {
		n.mu.RUnlock()
		return ErrClosed
	}
	// A copy of its own lets Close go ahead while f runs.
	fd, err := unix.FcntlInt(n.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	n.mu.RUnlock()
	if err != nil {
		return fmt.Errorf("hold network namespace: %w", err)
	}
	return onFreshThread(func() error {
		err := unix.Setns(fd, unix.CLONE_NEWNET)
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("enter network namespace: %w", rights(err))
		}
		return f()
	})
}

// FD is the file descriptor that holds n, for netlink sockets inside of it. It
// is valid until Close; -1 after that.
func (n *Namespace) FD() int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.file == nil {
		return -1
	}
	return int(n.file.Fd())
}

// Close lets go of n. The kernel removes it, its links and its table when the
// last socket and process in it are gone. Further calls do nothing.
func (n *Namespace) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.file == nil {
		return nil
	}
	err := n.file.Close()
	n.file = nil
	return err
}

// onFreshThread runs f on a locked OS thread that ends with it. The process's
// first thread never takes part: it could not end, and /proc/self, which is its
// view, would show the wrong namespace from then on.
func onFreshThread(f func() error) error {
	done := make(chan error, 1)
	var run func()
	run = func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			inner := make(chan struct{})
			go func() {
				defer close(inner)
				run()
			}()
			<-inner
			runtime.UnlockOSThread()
			return
		}
		err := errGoexit
		defer func() { done <- err }()
		err = f()
	}
	go run()
	return <-done
}

// rights adds the missing right to an error of the kernel.
func rights(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: needs CAP_SYS_ADMIN and CAP_NET_ADMIN (run it as root, or as root of a user namespace of its own)", err)
	}
	return err
}
