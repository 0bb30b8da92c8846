package sockdiag

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// kindOlder is TCPDIAG_GETSOCK, the question of before Linux 3.3.
const kindOlder = 18

// askFunc asks one question of a kind, and calls add for each answer to it.
type askFunc func(ctx context.Context, kind netlink.HeaderType, request []byte, traffic bool, add func(answer)) error

// dumper asks a kernel. apart is set once that has refused the older question and not
// the present one. It is safe for concurrent use.
type dumper struct {
	ask   askFunc
	apart atomic.Bool
}

var ofKernel = &dumper{ask: ask}

func dump(ctx context.Context, traffic bool, add func(answer)) error {
	return ofKernel.dump(ctx, traffic, add)
}

// dump is the kernel's own, over NETLINK_SOCK_DIAG. The present question is for one
// address family: its two walks over the kernel's table of all connections are most of
// what a look at few sockets costs. The older one needs one walk for both.
func (d *dumper) dump(ctx context.Context, traffic bool, add func(answer)) error {
	if !d.apart.Load() {
		some := false
		err := d.ask(ctx, kindOlder, encodeOlder(traffic, states...), traffic, func(a answer) {
			some = true
			add(a)
		})
		if some || !isBarred(err) {
			return err
		}
	}
	for _, family := range []uint8{familyIPv4, familyIPv6} {
		if err := d.ask(ctx, unix.SOCK_DIAG_BY_FAMILY, encodeRequest(family, traffic, states...), traffic, add); err != nil {
			return err
		}
	}
	d.apart.Store(true)
	return nil
}

// ask asks one question and takes in the answers to it. Each call has a socket of its
// own, so that nothing of a broken dump reaches the next one.
func ask(ctx context.Context, kind netlink.HeaderType, request []byte, traffic bool, add func(answer)) (err error) {
	c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{MessageBufferSize: readSize})
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	_, err = c.Send(netlink.Message{
		Header: netlink.Header{
			Type:  kind,
			Flags: netlink.Request | netlink.Dump,
		},
		Data: request,
	})
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	buf := buffers.Get().(*[readSize]byte)
	defer buffers.Put(buf)
	for {
		n, err := read(c, buf[:])
		if err != nil {
			return err
		}
		done, err := datagram(buf[:n], kind, traffic, add)
		if done || err != nil {
			return err
		}
	}
}

// buffers are read into, each by one dump at a time: what a socket of netlink offers is
// copied for each datagram, four megabytes for ten thousand sockets.
var buffers = sync.Pool{New: func() any { return new([readSize]byte) }}

// read blocks until there is a datagram, or a deadline passes.
func read(c *netlink.Conn, buf []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cause error
	err = raw.Read(func(fd uintptr) bool {
		for {
			if n, cause = unix.Read(int(fd), buf); !errors.Is(cause, unix.EINTR) {
				return !errors.Is(cause, unix.EAGAIN)
			}
		}
	})
	if err != nil {
		return 0, err
	}
	return n, os.NewSyscallError("read", cause)
}

// datagram takes in the answers of one datagram to a question of this kind, and says
// whether it ends the dump.
func datagram(b []byte, asked netlink.HeaderType, traffic bool, add func(answer)) (done bool, err error) {
	if len(b) == 0 {
		return false, fmt.Errorf("empty datagram: %w", errShort)
	}
	for len(b) >= unix.NLMSG_HDRLEN {
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.NLMSG_HDRLEN || length > len(b) {
			return false, fmt.Errorf("netlink message of %d bytes in %d: %w", length, len(b), errShort)
		}
		kind, flags := netlink.HeaderType(binary.NativeEndian.Uint16(b[4:])), netlink.HeaderFlags(binary.NativeEndian.Uint16(b[6:]))
		payload := b[unix.NLMSG_HDRLEN:length]
		switch {
		case flags&netlink.DumpInterrupted != 0:
			return false, errInterrupted
		case kind == netlink.Done || kind == netlink.Error:
			return true, errorOf(payload)
		case kind != asked || flags&netlink.Multi == 0:
			return false, fmt.Errorf("unexpected answer of type %d, flags %#x", uint16(kind), uint16(flags))
		}
		a, err := decodeAnswer(payload, traffic)
		if err != nil {
			return false, fmt.Errorf("decode: %w", err)
		}
		add(a)
		b = b[min((length+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
	}
	if len(b) != 0 {
		return false, fmt.Errorf("%d bytes after the last netlink message: %w", len(b), errShort)
	}
	return false, nil
}

// errorOf is what the last message of a dump, or the only one of one that was refused,
// says: a negative error number, 0 for none.
func errorOf(payload []byte) error {
	if len(payload) < 4 {
		return fmt.Errorf("error message of %d bytes: %w", len(payload), errShort)
	}
	no := -int32(binary.NativeEndian.Uint32(payload))
	switch err := unix.Errno(no); {
	case no == 0:
		return nil
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("the kernel has no tcp_diag, load it with modprobe tcp_diag: %w", errors.ErrUnsupported)
	default:
		return err
	}
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
