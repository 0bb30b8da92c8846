package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	// dumpBuffer is what one read of a dump offers; the kernel fills at most half.
	dumpBuffer = 64 << 10
	// eventBuffer holds some 13,000 events.
	eventBuffer = 8 << 20
	// askBuffer holds the answers of a whole batch.
	askBuffer = 1 << 20
	// replySize is more than one answer is charged in the receive buffer.
	replySize = 1536
	maxBatch  = 256

	groupNew     = 1 // NFNLGRP_CONNTRACK_*
	groupUpdate  = 2
	groupDestroy = 3
)

// netlinkKernel is this machine's kernel, seen from one network namespace.
type netlinkKernel struct {
	netns int
}

func newKernel(netns int) kernel { return &netlinkKernel{netns: netns} }

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
		for {
			c.n, c.err = unix.Read(int(fd), c.buf)
			if !errors.Is(c.err, unix.EINTR) {
				return !c.wait || !errors.Is(c.err, unix.EAGAIN)
			}
		}
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

// errDone ends a walk of messages at the end of a dump.
var errDone = errors.New("done")

func (k *netlinkKernel) dump(ctx context.Context, s selection, each func(message) error) (err error) {
	request, err := dumpRequest(s)
	if err != nil {
		return err
	}
	c, err := k.dial(dumpBuffer)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.nl.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		stop()
		err = errors.Join(err, c.nl.Close())
	}()
	if _, err := c.nl.Send(request); err != nil {
		return translate("send dump request", err)
	}
	for {
		err := c.receive(true, func(m message) error {
			if m.flags&netlink.HeaderFlags(unix.NLM_F_DUMP_INTR) != 0 {
				return errResized
			}
			switch m.typ {
			case netlink.Done:
				// A dump that fails in the middle ends with an error number.
				if len(m.payload) >= 4 {
					if code := int32(binary.NativeEndian.Uint32(m.payload)); code < 0 {
						return unix.Errno(-code)
					}
				}
				return errDone
			case netlink.Error:
				return errnoOf(m)
			case netlink.Overrun:
				return errOverflow
			default:
				return each(m)
			}
		})
		switch {
		case errors.Is(err, errDone):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("dump flows: %w", context.Cause(ctx))
		case s.source.IsValid() && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP)):
			return fmt.Errorf("dump flows of %s: %w", s.source, errNoFilter)
		case err != nil:
			return translate("dump flows", err)
		}
	}
}

// errnoOf returns the error number that an error message carries; nil for an
// acknowledgement.
func errnoOf(m message) error {
	if len(m.payload) < 4 {
		return fmt.Errorf("error message of %d bytes: %w", len(m.payload), errMalformed)
	}
	if code := int32(binary.NativeEndian.Uint32(m.payload)); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// translate turns the kernel's numbers into errors that say what to do.
func translate(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%s: %w", what, ErrPermission)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT),
		// nfnetlink without the conntrack subsystem does not know the message.
		errors.Is(err, unix.EINVAL) && what == "join event groups":
		return fmt.Errorf("%s: %w (%w)", what, ErrUnsupported, err)
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("%s: %w", what, errOverflow)
	}
	return fmt.Errorf("%s: %w", what, err)
}

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

func (l *netlinkListener) close() error { return l.c.nl.Close() }

type netlinkAsker struct {
	c     *conn
	batch int
	seq   uint32
	out   []byte
}

func (k *netlinkKernel) asker() (asker, error) {
	c, err := k.dial(dumpBuffer)
	if err != nil {
		return nil, err
	}
	a := &netlinkAsker{c: c, seq: 1}
	if err := a.prepare(); err != nil {
		return nil, errors.Join(err, c.nl.Close())
	}
	return a, nil
}

func (a *netlinkAsker) prepare() error {
	// An answer of "no such entry" need not repeat the question.
	if err := a.c.nl.SetOption(netlink.CapAcknowledge, true); err != nil {
		return translate("set up questions", err)
	}
	if err := a.c.nl.SetReadBuffer(askBuffer); err != nil {
		return translate("set up questions", err)
	}
	size, err := a.c.nl.ReadBuffer()
	if err != nil {
		return translate("set up questions", err)
	}
	a.batch = min(max(size/replySize, 1), maxBatch)
	return nil
}

func (a *netlinkAsker) ask(keys []flowKey, answer func(int, *entry)) error {
	for start := 0; start < len(keys); start += a.batch {
		part := keys[start:min(start+a.batch, len(keys))]
		if err := a.askBatch(part, func(i int, e *entry) { answer(start+i, e) }); err != nil {
			return err
		}
	}
	return nil
}

// askBatch sends all questions in one datagram. The kernel answers each before
// the send returns, so that what is not there then will not come.
func (a *netlinkAsker) askBatch(keys []flowKey, answer func(int, *entry)) error {
	first := a.seq
	a.out = a.out[:0]
	for i, k := range keys {
		a.out = appendGet(a.out, k, first+uint32(i))
	}
	a.seq += uint32(len(keys))
	if err := a.c.write(a.out); err != nil {
		return translate("ask for flows", err)
	}
	var e entry
	answered := 0
	for answered < len(keys) {
		err := a.c.receive(false, func(m message) error {
			i := int(m.seq - first)
			if i < 0 || i >= len(keys) {
				return nil // a late answer to a batch that was given up
			}
			switch m.typ {
			case netlink.Error:
				switch err := errnoOf(m); {
				case err == nil:
					return nil
				case errors.Is(err, unix.ENOENT):
					answered++
					answer(i, nil)
					return nil
				default:
					return err
				}
			case msgNew:
				if _, err := e.decode(m.payload, nil); err != nil {
					return err
				}
				answered++
				answer(i, &e)
			default:
			}
			return nil
		})
		if err != nil {
			return translate("ask for flows", err)
		}
	}
	return nil
}

func (a *netlinkAsker) close() error { return a.c.nl.Close() }

// inNamespace runs f on a thread of its own in the namespace, for files below
// /proc whose content depends on who reads them.
func inNamespace(netns int, f func() error) error {
	if netns == 0 {
		return f()
	}
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		lockThread()
		if err = unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
			err = os.NewSyscallError("setns", err)
			return
		}
		err = f()
	})
	wg.Wait()
	return err
}
