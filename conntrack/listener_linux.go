package conntrack

import (
	"errors"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	// eventBuffer holds some 13,000 events.
	eventBuffer = 8 << 20

	groupNew     = 1 // NFNLGRP_CONNTRACK_*
	groupUpdate  = 2
	groupDestroy = 3
)

// netlinkListener is the socket that has joined the event groups.
type netlinkListener struct {
	c *conn
}

func (k *netlinkKernel) listen(filter []bpf.RawInstruction) (listener, error) {
	c, err := k.dial(dumpBuffer)
	if err != nil {
		return nil, err
	}
	l := &netlinkListener{c: c}
	if err := l.join(filter); err != nil {
		return nil, errors.Join(err, c.nl.Close())
	}
	return l, nil
}

func (l *netlinkListener) join(filter []bpf.RawInstruction) error {
	// The filter comes first, so that no event of others ever takes room.
	if err := l.setFilter(filter); err != nil {
		return err
	}
	// Without the right for more, the system's limit has to do.
	if err := l.c.nl.SetReadBuffer(eventBuffer); err != nil {
		return translate("set event buffer", err)
	}
	for _, group := range []uint32{groupNew, groupUpdate, groupDestroy} {
		if err := l.c.nl.JoinGroup(group); err != nil {
			return translate("join event groups", err)
		}
	}
	return nil
}

func (l *netlinkListener) setFilter(filter []bpf.RawInstruction) error {
	err := l.c.nl.SetBPF(filter)
	if errors.Is(err, unix.ENOMEM) {
		// The kernel charges a filter to net.core.optmem_max, together with the one
		// that it replaces. Hearing too much is right, and only costs more.
		if err = l.c.nl.SetBPF(acceptAll); err == nil {
			if err = l.c.nl.SetBPF(filter); errors.Is(err, unix.ENOMEM) {
				return nil
			}
		}
	}
	return translate("set event filter", err)
}

func (l *netlinkListener) receive(each func(message) error) error {
	err := l.c.receive(true, each)
	if errors.Is(err, unix.ENOBUFS) {
		return errOverflow
	}
	return err
}

// idle looks at the socket first and at the reader then: what the one does not
// have any more the other still has.
func (l *netlinkListener) idle() bool {
	empty := false
	err := l.c.raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		empty = err == nil && n == 0
	})
	return err == nil && empty && !l.c.busy.Load()
}

func (l *netlinkListener) close() error { return l.c.nl.Close() }
