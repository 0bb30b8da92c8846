package conntrack

import (
	"errors"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// askBuffer holds the answers of a whole batch.
	askBuffer = 1 << 20
	// replySize is more than one answer is charged in the receive buffer.
	replySize = 1536
	maxBatch  = 256
)

// netlinkAsker asks on a socket of its own.
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
