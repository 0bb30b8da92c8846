package conntrack

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// engine is what runs while somebody watches: one goroutine that listens to
// events, one that asks again for known flows, and one that takes snapshots.
type engine struct {
	r      *Reader
	cancel context.CancelFunc
	group  *errgroup.Group

	// mu guards listener, which is replaced after a fault.
	mu       sync.Mutex
	listener listener

	// resting is set while no flow is known that would have to be asked for.
	resting atomic.Bool
}

// startEngine joins the event groups and starts the engine. Joining is done
// before it returns, so that a missing right is the caller's error.
func startEngine(r *Reader) (*engine, error) {
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	e := &engine{
		r: r, cancel: cancel, group: group,
	}
	if err := e.join(); err != nil {
		cancel()
		return nil, err
	}
	group.Go(func() error { return e.listen(ctx) })
	group.Go(func() error { return e.sweepLoop(ctx) })
	group.Go(func() error { return e.walkLoop(ctx) })
	return e, nil
}

// stop ends the goroutines and waits for them. A walk that the kernel is in the
// middle of ends with its present piece.
func (e *engine) stop() error {
	e.cancel()
	err := e.closeListener()
	if groupErr := e.group.Wait(); groupErr != nil && !errors.Is(groupErr, context.Canceled) {
		err = errors.Join(err, groupErr)
	}
	return err
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// join opens the event socket.
func (e *engine) join() error {
	filter, err := eventFilter(e.r.addresses())
	if err != nil {
		return err
	}
	l, err := e.r.kernel.listen(filter)
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.listener = l
	e.mu.Unlock()
	e.r.mu.Lock()
	e.r.listener = l
	e.r.mu.Unlock()
	return nil
}

// refilter lets the events of all present hosts through, and of no others. A
// socket that does not take the filter is closed: the listener then opens another
// one, with the filter of that time.
func (e *engine) refilter() error {
	// The addresses are read under the same lock, or an older filter could be set
	// behind a newer one.
	e.mu.Lock()
	defer e.mu.Unlock()
	filter, err := eventFilter(e.r.addresses())
	if err != nil {
		return err
	}
	if err := e.listener.setFilter(filter); err != nil {
		_ = e.listener.close()
	}
	return nil
}

// rejoinEvery is the pause between attempts to open the event socket again.
const rejoinEvery = 200 * time.Millisecond

// listen takes in events until ctx ends. Lost events and faults make all hosts
// unknown until a snapshot that begins later.
func (e *engine) listen(ctx context.Context) error {
	for {
		e.mu.Lock()
		l := e.listener
		e.mu.Unlock()
		err := l.receive(e.event)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
		case errors.Is(err, errOverflow):
			e.lost(ctx, err)
		case errors.Is(err, errMalformed):
			e.lost(ctx, err)
		default:
			e.fault(ctx, err)
			if err := e.rejoin(ctx, l); err != nil {
				return err
			}
		}
	}
}

// rejoin opens a new event socket in place of one that failed.
func (e *engine) rejoin(ctx context.Context, failed listener) error {
	_ = failed.close() // it has failed already, and its error is known
	for {
		err := e.join()
		if ctx.Err() != nil {
			_ = e.closeListener() // stop may have closed the failed one only
			return ctx.Err()
		}
		if err == nil {
			// Whoever came or went meanwhile is not in its filter yet.
			err = e.refilter()
		}
		if err == nil {
			e.healed(ctx)
			return nil
		}
		e.fault(ctx, err)
		if err := sleep(ctx, rejoinEvery); err != nil {
			return err
		}
	}
}

func (e *engine) closeListener() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.listener.close()
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// event takes in one message of the event groups.
func (e *engine) event(m message) error {
	var en entry
	kind, err := decodeEvent(m, &en)
	if err != nil {
		return err
	}
	now := time.Now()
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.concerned(&en, func(h *host) {
		if h.event(kind, &en, now) {
			e.changed(h)
		}
	})
	return nil
}

// changed tells the watches of a host, and looks again at what needs it. The
// reader's mutex is held.
func (e *engine) changed(h *host) {
	h.notify()
	if h.verify || e.resting.Load() {
		wake(e.r.sweep)
	}
	if h.lost {
		wake(e.r.walk)
	}
}

// lost makes all hosts unknown: something was not told, nobody knows what.
func (e *engine) lost(ctx context.Context, err error) {
	r := e.r
	r.mu.Lock()
	r.stats.Losses++
	now := time.Now()
	for _, h := range r.hosts {
		h.synced, h.joined = false, now
		h.notify()
	}
	r.mu.Unlock()
	r.log.LogAttrs(ctx, slog.LevelWarn, "events lost, taking a new snapshot", slog.Any("err", err))
	wake(r.walk)
	wake(r.sweep)
}

// fault notes that the kernel cannot be asked.
func (e *engine) fault(ctx context.Context, err error) {
	r := e.r
	r.mu.Lock()
	first := r.fault == nil
	r.fault = err
	r.mu.Unlock()
	if first {
		r.log.LogAttrs(ctx, slog.LevelWarn, "the kernel cannot be asked, trying again", slog.Any("err", err))
	}
	e.lost(ctx, err)
}

// healed notes that the kernel answers again.
func (e *engine) healed(ctx context.Context) {
	e.r.mu.Lock()
	e.r.fault = nil
	e.r.mu.Unlock()
	e.lost(ctx, errRejoined)
}
