package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that a cluster made, bound to a file of its state folder.
type Namespace struct{ path string }

// Path is the file that the namespace is bound to, as nsenter --net takes it.
func (n Namespace) Path() string { return n.path }

// newNamespace makes a network namespace and binds it to path.
func newNamespace(path string) (Namespace, error) {
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return Namespace{}, fmt.Errorf("make file of network namespace: %w", err)
	}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		return nil
	}, func() error {
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind network namespace to %s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		return Namespace{}, err
	}
	return Namespace{path}, nil
}

// NamespaceAt is the network namespace that a file is bound to or stands for, like /proc/1/ns/net.
func NamespaceAt(path string) Namespace { return Namespace{path} }

// Do runs f on a thread that is in the namespace and blocks until it returns. What f opens stays in the namespace; new
// goroutines of f do not.
func (n Namespace) Do(f func() error) error {
	target, err := os.Open(n.path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer target.Close()
	return onThread(func() error {
		if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", n.path, err)
		}
		return nil
	}, f)
}

// onThread calls enter, which moves its thread into another network namespace, and then f there, and takes the thread
// back. It has to come back: the main thread, which cannot be ended, would hold the namespace as long as the process.
func onThread(enter, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		before, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			done <- fmt.Errorf("open own network namespace: %w", err)
			return
		}
		defer before.Close()
		if err = enter(); err == nil {
			err = f()
		}
		if back := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); back != nil {
			done <- errors.Join(err, fmt.Errorf("leave network namespace: %w", back))
			return // without the thread
		}
		runtime.UnlockOSThread()
		done <- err
	}()
	return <-done
}

// Dial connects from inside the namespace. The address is an IP: a name would be looked up outside.
func (n Namespace) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := n.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Command runs a program of this machine inside the namespace.
func (n Namespace) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + n.path, "--", name}, args...)...)
}
