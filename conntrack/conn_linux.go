package conntrack

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// dumpBuffer is what one read offers; the kernel fills at most half.
const dumpBuffer = 64 << 10

// conn is a netlink socket that is read without an allocation per message. It is
// for one reader at a time.
type conn struct {
	nl  *netlink.Conn
	raw syscall.RawConn
	buf []byte
	// read is one attempt to fill buf; it leaves what came of it in n and err, and
	// asks to be called again if wait is set and nothing is there.
	read func(fd uintptr) bool
	wait bool
	n    int
	err  error
	// busy is set from before a datagram is read until the next read finds none:
	// while it is handled.
	busy atomic.Bool
}

func (k *netlinkKernel) dial(buffer int) (*conn, error) {
	nl, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: k.netns})
	if err != nil {
		return nil, translate("open netlink socket", err)
	}
	raw, err := nl.SyscallConn()
	if err != nil {
		return nil, errors.Join(translate("open netlink socket", err), nl.Close())
	}
	c := &conn{nl: nl, raw: raw, buf: make([]byte, buffer)}
	c.read = func(fd uintptr) bool {
		c.busy.Store(true)
		for {
			c.n, c.err = unix.Read(int(fd), c.buf)
			if !errors.Is(c.err, unix.EINTR) {
				break
			}
		}
		none := errors.Is(c.err, unix.EAGAIN)
		if none {
			c.busy.Store(false)
		}
		return !c.wait || !none
	}
	return c, nil
}

// receive reads one datagram and walks its messages. With wait it blocks until
// there is one, a deadline or Close; without, it returns unix.EAGAIN at once.
func (c *conn) receive(wait bool, each func(message) error) error {
	c.wait = wait
	if err := c.raw.Read(c.read); err != nil {
		return err
	}
	if c.err != nil {
		return os.NewSyscallError("read", c.err)
	}
	if c.n == 0 {
		return fmt.Errorf("empty datagram: %w", errMalformed)
	}
	return messages(c.buf[:c.n], each)
}

func (c *conn) write(b []byte) error {
	var err error
	writeErr := c.raw.Write(func(fd uintptr) bool {
		_, err = unix.Write(int(fd), b)
		return !errors.Is(err, unix.EAGAIN)
	})
	if writeErr != nil {
		return writeErr
	}
	return os.NewSyscallError("write", err)
}
