//go:build linux

package netlab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"
)

// batchBytes is how much is sent to the kernel at once: some 200 entries, so
// that a refusal of each of them fits into the socket's default buffer.
const batchBytes = 32 << 10

// Fill makes entries in n's connection tracking table, in batches of
// some 200. It blocks until the kernel has made them all or refused one; entries
// of a batch around a refused one may exist. n need not track. Listeners see the
// entries as new.
func Fill(n *Namespace, flows iter.Seq[Flow]) error {
	err := withTable(n, func(fd int) error {
		var e encoder
		for f := range flows {
			if err := f.encode(&e); err != nil {
				return err
			}
			if len(e.b) >= batchBytes {
				if err := e.flush(fd); err != nil {
					return err
				}
			}
		}
		return e.flush(fd)
	})
	if errors.Is(err, unix.ENOMEM) {
		err = fmt.Errorf("%w: the table is full (nf_conntrack_max of the machine), see RaiseTable", err)
	}
	if err != nil {
		return fmt.Errorf("fill table: %w", err)
	}
	return nil
}

// Delete removes one entry of n by its original tuple and zone.
func Delete(n *Namespace, f Flow) error {
	err := withTable(n, func(fd int) error {
		var e encoder
		if err := f.encodeDelete(&e); err != nil {
			return err
		}
		return e.flush(fd)
	})
	if err != nil {
		return fmt.Errorf("delete entry %s to %s: %w", f.Orig.Src, f.Orig.Dst, err)
	}
	return nil
}

// Flush removes all entries of n.
func Flush(n *Namespace) error {
	err := withTable(n, func(fd int) error {
		var e encoder
		e.begin(ipctnlMsgDelete, unix.NLM_F_REQUEST, unix.AF_UNSPEC)
		e.end()
		return e.flush(fd)
	})
	if err != nil {
		return fmt.Errorf("flush table: %w", err)
	}
	return nil
}

// withTable runs f with a netfilter netlink socket of n.
func withTable(n *Namespace, f func(fd int) error) error {
	fd := -1
	err := n.Do(func() error {
		var err error
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return err
	})
	if err != nil {
		return fmt.Errorf("open netfilter netlink: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	// Errors then carry only the header of the message that they are about.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return fmt.Errorf("open netfilter netlink: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("open netfilter netlink: %w", err)
	}
	return f(fd)
}

// flush sends what is there and reads answers up to that of the last message.
// Messages other than the last are answered only where they fail.
func (e *encoder) flush(fd int) error {
	if len(e.b) == 0 {
		return nil
	}
	e.acknowledge()
	for {
		_, err := unix.Write(fd, e.b)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("send: %w", rights(err))
		}
	}
	e.b = e.b[:0]
	buf := make([]byte, 64<<10)
	var failed error
	for {
		size, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return errors.Join(failed, fmt.Errorf("receive: %w", err))
		}
		last, err := answers(buf[:size], e.seq)
		failed = errors.Join(failed, err)
		if last {
			return failed
		}
	}
}

// answers reads acknowledgements: the first refusal among them, and whether the
// one of the last message is there.
func answers(b []byte, last uint32) (bool, error) {
	var failed error
	for len(b) >= unix.NLMSG_HDRLEN+4 {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN+4 || size > len(b) {
			break
		}
		if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
			errno := int32(binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN:]))
			if errno != 0 && failed == nil {
				failed = rights(unix.Errno(-errno))
			}
			if binary.NativeEndian.Uint32(b[8:]) == last {
				return true, failed
			}
		}
		b = b[min(len(b), (size+3)&^3):]
	}
	return false, failed
}
