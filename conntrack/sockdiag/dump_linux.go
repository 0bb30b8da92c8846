package sockdiag

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// dump is the kernel's own, over NETLINK_SOCK_DIAG. Each call has a socket of its
// own, so that nothing of a broken dump reaches the next one.
func dump(ctx context.Context, family uint8, traffic bool, add func(answer)) (err error) {
	c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{MessageBufferSize: readSize})
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	_, err = c.Send(netlink.Message{
		Header: netlink.Header{
			Type:  unix.SOCK_DIAG_BY_FAMILY,
			Flags: netlink.Request | netlink.Dump,
		},
		Data: encodeRequest(family, traffic, states...),
	})
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	for m, err := range c.ReceiveIter() {
		switch {
		case errors.Is(err, unix.ENOENT):
			return fmt.Errorf("the kernel has no tcp_diag, load it with modprobe tcp_diag: %w", errors.ErrUnsupported)
		case err != nil:
			return err
		case m.Header.Flags&netlink.DumpInterrupted != 0:
			return errInterrupted
		case m.Header.Type != unix.SOCK_DIAG_BY_FAMILY || m.Header.Flags&netlink.Multi == 0:
			return fmt.Errorf("unexpected answer of type %d, flags %#x", m.Header.Type, uint16(m.Header.Flags))
		}
		a, err := decodeAnswer(m.Data, traffic)
		if err != nil {
			return fmt.Errorf("decode: %w", err)
		}
		add(a)
	}
	return nil
}

func retriable(err error) bool {
	return errors.Is(err, errInterrupted) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EINTR)
}

// isBarred says that sock_diag cannot be asked: the kernel does not have it, or a
// filter of system calls, or a kernel in user space, does not let it.
func isBarred(err error) bool {
	for _, why := range []error{
		errors.ErrUnsupported, fs.ErrPermission, unix.ENOSYS, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT,
		unix.ESOCKTNOSUPPORT, unix.EOPNOTSUPP, unix.EINVAL,
	} {
		if errors.Is(err, why) {
			return true
		}
	}
	return false
}
