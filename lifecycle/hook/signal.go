package hook

import (
	"errors"
	"os"
	"syscall"
)

// signals are those that an application may be told by.
var signals = map[string]syscall.Signal{
	"SIGHUP": syscall.SIGHUP, "SIGINT": syscall.SIGINT, "SIGQUIT": syscall.SIGQUIT, "SIGTERM": syscall.SIGTERM,
	"SIGUSR1": syscall.SIGUSR1, "SIGUSR2": syscall.SIGUSR2, "SIGWINCH": syscall.SIGWINCH,
}

// signalFirst sends a signal to the first process of this container: the application,
// whose hook this process is.
func signalFirst(s syscall.Signal) error {
	const first = 1
	if os.Getpid() == first {
		return errors.New("this process is the first of its container: it is no exec hook")
	}
	return syscall.Kill(first, s)
}
