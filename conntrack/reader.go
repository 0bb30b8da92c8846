package conntrack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Config configures a Reader. The zero value reads the caller's network
// namespace.
type Config struct {
	// Snapshot is how the table is read, Auto unless set.
	Snapshot SnapshotMode
	// NetNS is a file descriptor of the network namespace to read; 0 means the
	// caller's. It has to stay open while the Reader is used.
	NetNS int
	// Logger gets what happens to the reading itself; nil discards it.
	Logger *slog.Logger
}

// Stats are a Reader's own figures, since it was made.
type Stats struct {
	// Snapshots were taken, the latest of them in LastSnapshot.
	Snapshots    int
	LastSnapshot time.Duration
	// SnapshotsTook is how long all of them took together.
	SnapshotsTook time.Duration
	// Sweeps asked for known sessions again, the latest of them for LastSweepFlows
	// flows in LastSweep.
	Sweeps         int
	LastSweep      time.Duration
	LastSweepFlows int
	// Losses is how often the kernel said that events were lost.
	Losses int
}

// Reader answers for the sessions of addresses. One Reader serves all of a
// node's draining pods: they share one event socket and their snapshots. While
// nobody watches it has no goroutine, no socket and no session in memory. It is
// safe for concurrent use.
type Reader struct {
	kernel kernel
	mode   SnapshotMode
	log    *slog.Logger

	// walk and sweep wake those who take snapshots and ask for known flows.
	walk, sweep chan struct{}

	// life serializes the start and the end of the engine.
	life   sync.Mutex
	engine *engine

	// mu guards all below, and the hosts, sessions and watches.
	mu     sync.Mutex
	hosts  map[netip.Addr]*host
	limits limits
	// listener is the engine's.
	listener listener
	stats    Stats
	// fault is why no events can be heard, walkFault why no snapshot could be taken.
	fault, walkFault error
}

// NewReader returns a Reader. It does no I/O and cannot fail.
func NewReader(cfg Config) *Reader {
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Reader{
		kernel: newKernel(cfg.NetNS), mode: cfg.Snapshot, log: log,
		hosts: make(map[netip.Addr]*host),
		walk:  make(chan struct{}, 1), sweep: make(chan struct{}, 1),
	}
}

// Ready says whether the kernel lets connection tracking be read here: one question
// for one flow that there cannot be. It does not block. Errors are ErrPermission and
// ErrUnsupported, wrapped, and whatever else the kernel answers.
func (r *Reader) Ready() error {
	_, err := r.prepare()
	return err
}

// Stats returns the Reader's figures now.
func (r *Reader) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Sessions takes one snapshot of the target's sessions, without joining events:
// those that are not over, and their counts. A handshake or a datagram session
// may be judged by one look only, and Quiet is an estimate. It blocks for as long
// as the kernel walks its table, up to seconds on a million entries, or until ctx
// ends. Errors are ErrPermission, ErrUnsupported and ErrNotTracking, wrapped, and
// whatever else the kernel answers. It needs CAP_NET_ADMIN.
func (r *Reader) Sessions(ctx context.Context, t Target) ([]Session, Counts, error) {
	if err := t.Validate(); err != nil {
		return nil, Counts{}, err
	}
	t = t.normalized()
	limits, err := r.prepare()
	if err != nil {
		return nil, Counts{}, err
	}
	if err := r.tracks(ctx, t, limits); err != nil {
		return nil, Counts{}, err
	}
	// A reader of its own keeps the snapshot, so that nothing is shared.
	own := &Reader{kernel: r.kernel, log: r.log, limits: limits}
	w := &Watch{reader: own, target: t, once: true}
	for _, a := range t.Addresses {
		h := newHost(a, limits)
		h.interest.widen(t)
		w.hosts = append(w.hosts, h)
	}
	own.hosts = make(map[netip.Addr]*host)
	var wishes []wish
	for _, h := range w.hosts {
		own.hosts[h.addr] = h
		wishes = append(wishes, h.wish())
	}
	began := time.Now()
	if err := r.snapshot(ctx, wishes, func(es []entry, asked, answered time.Time) {
		for i := range es {
			own.concerned(&es[i], func(h *host) { h.observe(&es[i], false, asked, answered) })
		}
	}); err != nil {
		return nil, Counts{}, fmt.Errorf("take snapshot: %w", err)
	}
	r.noteSnapshot(time.Since(began))
	for _, h := range w.hosts {
		h.synced, h.walked = true, began
	}
	w.target.SocketsReported = false
	return w.Sessions(), w.Counts(), nil
}

func (r *Reader) noteSnapshot(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Snapshots++
	r.stats.LastSnapshot = took
	r.stats.SnapshotsTook += took
}

// snapshot walks the table for the wishes and hands the flows that concern one of
// them to apply, which is called without any lock.
func (r *Reader) snapshot(ctx context.Context, wishes []wish, apply func([]entry, time.Time, time.Time)) error {
	asked := make(map[netip.Addr]bool, len(wishes))
	for _, w := range wishes {
		asked[w.addr] = true
	}
	t := take{
		kernel: r.kernel, mode: r.mode, wishes: wishes, apply: apply,
		wanted: func(e *entry) bool { return asked[e.reply.src.Addr()] || asked[e.orig.src.Addr()] },
	}
	return t.run(ctx)
}

// concerned calls f for each host that an entry may belong to. The mutex is held.
func (r *Reader) concerned(e *entry, f func(*host)) {
	server, client := r.hosts[e.reply.src.Addr()], r.hosts[e.orig.src.Addr()]
	if server != nil {
		f(server)
	}
	if client != nil && client != server {
		f(client)
	}
}

// prepare reads the kernel's settings and makes sure that it answers.
func (r *Reader) prepare() (limits, error) {
	l, err := r.kernel.limits()
	if err != nil {
		return l, err
	}
	return l, r.kernel.reachable()
}

// Watch joins the kernel's events for the target and returns; the first snapshot
// follows, and until it is in step Counts.Known is false. Where nothing is tracked
// but the server's sockets are reported, these decide from the start, on TCP
// alone. Errors are those of Sessions. Later faults do not end the watch: they make its counts
// unknown until the kernel answers again.
func (r *Reader) Watch(ctx context.Context, t Target) (*Watch, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	limits, err := r.prepare()
	if err != nil {
		return nil, err
	}
	blind := false
	switch err := r.tracks(ctx, t.normalized(), limits); {
	case err == nil:
	case !errors.Is(err, ErrNotTracking) || !t.SocketsReported:
		return nil, err
	case t.Direction.outbound():
		return nil, fmt.Errorf("the server's sockets tell of inbound sessions only: %w", err)
	case !t.onlyTCP():
		return nil, fmt.Errorf("the server's sockets tell of TCP only: %w", err)
	default:
		// The sockets will decide, and tell of TCP only.
		blind, t.Protocols = true, []Protocol{TCP}
	}
	t = t.normalized()
	r.life.Lock()
	defer r.life.Unlock()
	w := &Watch{reader: r, target: t, changes: make(chan struct{}, 1)}
	w.report.blindSeen, w.untracked = blind, blind
	fresh := r.add(w, limits)
	if r.engine == nil {
		r.engine, err = startEngine(r)
	} else {
		err = r.engine.refilter()
	}
	if err != nil {
		return nil, errors.Join(err, r.removeLocked(w))
	}
	r.joined(w, fresh)
	return w, nil
}

// add makes the watch's hosts, or takes part in those that are kept already. It
// returns those whose events or snapshot lack something until now.
func (r *Reader) add(w *Watch, l limits) (fresh []*host) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limits = l
	for _, a := range w.target.Addresses {
		h := r.hosts[a]
		if h == nil {
			h = newHost(a, l)
			r.hosts[a] = h
		}
		if h.interest.widen(w.target) {
			h.synced = false // it lacks the flows that did not matter before
			fresh = append(fresh, h)
		}
		h.watches = append(h.watches, w)
		w.hosts = append(w.hosts, h)
	}
	return fresh
}

// joined notes that events for the fresh hosts arrive from now on, and asks for
// their snapshot.
func (r *Reader) joined(w *Watch, fresh []*host) {
	r.mu.Lock()
	now := time.Now()
	for _, h := range fresh {
		h.joined = now
	}
	if w.synced() {
		w.baseline = now
	}
	w.notify()
	r.mu.Unlock()
	wake(r.walk)
}

func (r *Reader) remove(w *Watch) error {
	r.life.Lock()
	defer r.life.Unlock()
	return r.removeLocked(w)
}

// removeLocked takes a watch away, and stops the engine with the last one.
func (r *Reader) removeLocked(w *Watch) error {
	r.mu.Lock()
	if w.closed {
		r.mu.Unlock()
		return nil
	}
	w.closed = true
	if w.later != nil {
		w.later.Stop()
	}
	for _, h := range w.hosts {
		h.watches = slices.DeleteFunc(h.watches, func(other *Watch) bool { return other == w })
		if len(h.watches) == 0 {
			delete(r.hosts, h.addr)
		}
	}
	last := len(r.hosts) == 0
	r.mu.Unlock()
	if r.engine == nil {
		return nil
	}
	if !last {
		return r.engine.refilter()
	}
	err := r.engine.stop()
	r.engine = nil
	r.mu.Lock()
	r.fault, r.walkFault, r.listener = nil, nil, nil
	r.mu.Unlock()
	return err
}

// addresses returns what the event filter lets through.
func (r *Reader) addresses() []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	addrs := make([]netip.Addr, 0, len(r.hosts))
	for a := range r.hosts {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}
