package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// netlinkKernel is this machine's kernel, seen from one network namespace.
type netlinkKernel struct {
	netns int
}

func (k *netlinkKernel) reachable() error {
	a, err := k.asker()
	if err != nil {
		return err
	}
	nobody := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	nothing := flowKey{proto: TCP, orig: tuple{src: nobody, dst: nobody}}
	return errors.Join(a.ask([]flowKey{nothing}, func(int, *entry) {}), a.close())
}

func newKernel(netns int) kernel { return &netlinkKernel{netns: netns} }

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

// translate turns the kernel's numbers into errors that say what to do. None of
// our messages is invalid where conntrack can be asked, so EINVAL is how nfnetlink
// says that it has no such subsystem.
func translate(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%s: %w", what, ErrPermission)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT),
		errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("%s: %w (%w)", what, ErrUnsupported, err)
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("%s: %w", what, errOverflow)
	}
	return fmt.Errorf("%s: %w", what, err)
}

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
