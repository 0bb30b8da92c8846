package sockdiag

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// errInterrupted is a dump that the kernel itself calls inconsistent.
var errInterrupted = errors.New("the kernel's list changed while it was read")

// readSize lets the kernel put a hundred sockets into one answer, its limit
// being 32 KiB.
const readSize = 32 << 10

// attempts bounds how often a dump is begun again. It takes milliseconds, so
// whoever cannot get a whole one in so many has to be told.
const attempts = 5

// dumpFunc calls add for each TCP socket that counts or listens, with its traffic
// where that is asked for. An error means that what it has added so far is not whole.
type dumpFunc func(ctx context.Context, traffic bool, add func(answer)) error

// states are those of the sockets that are asked for.
var states = []State{Established, CloseWait, FinWait1, Closing, LastAck, SynRecv, Listen}

// Take looks at the TCP sockets of the network namespace of the calling thread.
//
// It blocks for the time that the kernel needs, some milliseconds for ten
// thousand sockets, or until the context is done. A dump that the kernel could not
// finish in one piece is begun again some times; after that the error says so,
// and no part of it is returned. It may be called concurrently. It needs no rights.
//
// Where the kernel has no tcp_diag, or a seccomp filter bars netlink, it goes by
// /proc/net/tcp, which takes longer; the look says so. errors.ErrUnsupported is
// returned where there is neither, and on other systems.
func Take(ctx context.Context) (Look, error) { return kernel.take(ctx, false) }

// TakeTraffic is Take, and reads what each connection has sent and received as
// well. That takes half as long again. The traffic is not known in a look that went
// by /proc/net/tcp.
func TakeTraffic(ctx context.Context) (Look, error) { return kernel.take(ctx, true) }

// kernel is the one that this process runs on.
var kernel = &ways{diag: dump, proc: dumpProc, own: ownAddresses, ownProc: ownFromProc}

// againAfter is how long sock_diag is left alone once it was refused: each question
// may start a search for a kernel module.
const againAfter = 30 * time.Second

// ways are those by which a kernel tells of its sockets. It is safe for concurrent
// use.
type ways struct {
	diag, proc   dumpFunc
	own, ownProc func() ([]netip.Addr, error)

	mu      sync.Mutex
	refusal error // why there is no sock_diag, or nil
	refused time.Time
	// had is how many sockets the last look had: the next one has room for them.
	had int
}

func (w *ways) take(ctx context.Context, traffic bool) (Look, error) {
	refusal := w.refusedLately()
	if refusal == nil {
		l, err := take(ctx, w.diag, traffic, w.own, w.room(0))
		if !isBarred(err) {
			w.room(len(l.Sockets))
			return l, err
		}
		refusal = err
		w.refuse(err)
	}
	l, err := take(ctx, w.proc, traffic, func() ([]netip.Addr, error) {
		own, err := w.own()
		if err != nil {
			return w.ownProc()
		}
		return own, nil
	}, 0)
	if err != nil {
		if ctx.Err() == nil {
			err = fmt.Errorf("%w (%w); %s: %w", errors.ErrUnsupported, refusal, ProcNet, err)
		}
		return Look{}, err
	}
	l.Source, l.Refusal = ProcNet, refusal
	if !traffic {
		l.Traffic = nil
	}
	return l, nil
}

func (w *ways) refusedLately() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.refused) < againAfter {
		return w.refusal
	}
	return nil
}

// room is for how many sockets a look should have room. now is how many there were in
// a look, if there was one.
func (w *ways) room(now int) int {
	const spare = 8
	w.mu.Lock()
	defer w.mu.Unlock()
	if now > 0 {
		w.had = now + now/spare
	}
	return w.had
}

func (w *ways) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refusal, w.refused = err, time.Now()
}

func take(ctx context.Context, dump dumpFunc, traffic bool, ownAddresses func() ([]netip.Addr, error), room int) (Look, error) {
	var err error
	for range attempts {
		if ctx.Err() != nil {
			break
		}
		look := Look{At: time.Now(), Sockets: slices.Grow([]Socket(nil), room)}
		if traffic {
			look.Traffic = slices.Grow([]Traffic(nil), room)
		}
		if err = dump(ctx, traffic, look.add); err == nil {
			own, err := ownAddresses()
			if err != nil {
				return Look{}, fmt.Errorf("list own addresses: %w", err)
			}
			look.finish(own)
			return look, nil
		}
		if ctx.Err() == nil && !retriable(err) {
			return Look{}, fmt.Errorf("list sockets: %w", err)
		}
	}
	if ctx.Err() != nil {
		return Look{}, fmt.Errorf("list sockets: %w", context.Cause(ctx))
	}
	return Look{}, fmt.Errorf("list sockets, %d times: %w", attempts, err)
}

func ownAddresses() ([]netip.Addr, error) {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(nets))
	for _, n := range nets {
		if ipnet, ok := n.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(ipnet.IP); ok {
				addrs = append(addrs, a)
			}
		}
	}
	return addrs, nil
}
