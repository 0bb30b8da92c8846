package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// faulty is this machine's kernel with faults that it cannot be made to have at
// will.
type faulty struct {
	kernel
	mu        sync.Mutex
	listeners []*faultyListener
	// onDump is called before each message of a dump, noDump makes dumps fail.
	onDump func()
	noDump error
	// listenErr makes joining fail.
	listenErr error
	// unreachable is what the kernel says to a question.
	unreachable error
}

func (k *faulty) reachable() error {
	if k.unreachable != nil {
		return k.unreachable
	}
	return k.kernel.reachable()
}

type faultyListener struct {
	listener
	mu       sync.Mutex
	overflow bool
}

func (k *faulty) listen(filter []bpf.RawInstruction) (listener, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.listenErr != nil {
		return nil, k.listenErr
	}
	l, err := k.kernel.listen(filter)
	if err != nil {
		return nil, err
	}
	f := &faultyListener{listener: l}
	k.listeners = append(k.listeners, f)
	return f, nil
}

// receive tells once that events were lost, behind the next event.
func (l *faultyListener) receive(each func(message) error) error {
	err := l.listener.receive(each)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.overflow && err == nil {
		l.overflow = false
		return errOverflow
	}
	return err
}

func (k *faulty) dump(ctx context.Context, s selection, each func(message) error) error {
	k.mu.Lock()
	onDump, noDump := k.onDump, k.noDump
	k.mu.Unlock()
	if noDump != nil {
		return noDump
	}
	return k.kernel.dump(ctx, s, func(m message) error {
		if onDump != nil {
			onDump()
		}
		return each(m)
	})
}

func newFaultyReader(n *netlab.Namespace) (*Reader, *faulty) {
	r := newReader(n)
	k := &faulty{kernel: r.kernel}
	r.kernel = k
	return r, k
}

// P22: events are lost. Until the next snapshot nothing is known; then the count
// is right.
func TestP22LostEventsMakeUnknownThenRight(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	r, k := newFaultyReader(lab.Node)
	w := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}})
	a := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	counts(t, w, 1, 0, 0)

	k.mu.Lock()
	k.noDump = errors.New("no walk for now")
	l := k.listeners[0]
	k.mu.Unlock()
	l.mu.Lock()
	l.overflow = true
	l.mu.Unlock()
	b := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	eventually(t, "the loss makes it unknown", func() bool { return !w.Counts().Known })
	a.end(t)
	b.end(t)
	always(t, 2*time.Second, "it stays unknown without a snapshot", func() bool { return !w.Counts().Known })
	if err := w.Err(); err == nil {
		t.Error("no error says why it is unknown")
	}
	k.mu.Lock()
	k.noDump = nil
	k.mu.Unlock()
	counts(t, w, 0, 0, 0)
	if r.Stats().Losses == 0 {
		t.Error("the loss is not counted")
	}
}

// P22: the event socket is closed under the reader. It opens another one.
func TestP22SocketClosedUnderUs(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	older := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	r, k := newFaultyReader(lab.Node)
	w := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 1, 0, 0)
	k.mu.Lock()
	k.listenErr = errors.New("no socket for now")
	l := k.listeners[0]
	k.mu.Unlock()
	must(t, l.close())
	eventually(t, "it becomes unknown", func() bool { return !w.Counts().Known })
	younger := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	k.mu.Lock()
	k.listenErr = nil
	k.mu.Unlock()
	counts(t, w, 2, 0, 0)
	older.end(t)
	younger.end(t)
	counts(t, w, 0, 0, 0)
	if err := w.Err(); err != nil {
		t.Errorf("err = %v after it healed", err)
	}
}

// P22: a real overflow, by events that nobody reads in time.
func TestP22RealOverflow(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	fill(t, n, inbound(pod4, 10))
	r := newReader(n)
	w := watch(t, r, Target{Addresses: []netip.Addr{pod4}})
	counts(t, w, 10, 0, 0)
	// As long as the mutex is held no event is taken in.
	r.mu.Lock()
	fill(t, n, inbound(pod4.Next().Next(), 1))
	fill(t, n, func(yield func(netlab.Flow) bool) {
		for f := range inbound(pod4, 16_010) {
			if f.Orig.Src.Port() >= 1034 && !yield(f) {
				return
			}
		}
	})
	r.mu.Unlock()
	counts(t, w, 16_010, 0, 0)
	if s := r.Stats(); s.Losses == 0 || s.Snapshots < 2 || s.SnapshotsTook <= s.LastSnapshot {
		t.Errorf("stats = %+v, want a loss and a second snapshot", s)
	}
}

// 10,000 sessions that end at once.
func TestTenThousandEndAtOnce(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	fill(t, n, inbound(pod4, 5000))
	w := watch(t, newReader(n), Target{Addresses: []netip.Addr{pod4}})
	counts(t, w, 5000, 0, 0)
	fill(t, n, func(yield func(netlab.Flow) bool) {
		for f := range inbound(pod4, 10_000) {
			if f.Orig.Src.Port() >= 1024+5000 && !yield(f) {
				return
			}
		}
	})
	counts(t, w, 10_000, 0, 0)
	must(t, netlab.Flush(n))
	counts(t, w, 0, 0, 10_000)
	fill(t, n, func(yield func(netlab.Flow) bool) {
		for f := range inbound(pod4, 10_000) {
			f.TCPState, f.Timeout = netlab.TCPTimeWait, 120
			if !yield(f) {
				return
			}
		}
	})
	counts(t, w, 0, 0, 0)
}

// A full table: what is known stays right, and new sessions are counted as soon as
// there is room for them again.
func TestFullTable(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	limit, _, err := netlab.TableSize()
	must(t, err)
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	a := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	say(t, a.client, a.server)
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 1, 0, 0)

	// The limit is one for each network namespace.
	err = netlab.Fill(lab.Node, inbound(other4, limit))
	if !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.ENFILE) {
		t.Fatalf("filling a table beyond its limit: %v, want it to be full", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if c, err := lab.Client.Dial(ctx, "tcp", hostPort(lab.ServiceAddr, lab.ServicePort)); err == nil {
		_ = c.Close()
		t.Fatal("a connection was made through a full table")
	}
	say(t, a.server, a.client)
	counts(t, w, 1, 0, 0)
	must(t, netlab.Flush(lab.Node))
	say(t, a.client, a.server)
	counts(t, w, 1, 0, 0)
	b := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	counts(t, w, 2, 0, 0)
	a.end(t)
	b.end(t)
	counts(t, w, 0, 0, 0)
}

// Without events only a walk can tell of new sessions, so a zero needs one that
// began after the last known session had ended.
func TestWithoutEventsASnapshotProvesZero(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	must(t, lab.Node.Sysctl("net/netfilter/nf_conntrack_events", "0"))
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	a := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 1, 0, 0)
	b := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	a.end(t)
	eventually(t, "the new session is found without an event", func() bool {
		c := w.Counts()
		if c.Known && c.Blocking() == 0 {
			t.Fatalf("a false zero: %+v", c)
		}
		return c.Known && c.New == 1
	})
	counts(t, w, 1, 0, 0)
	b.end(t)
	counts(t, w, 0, 0, 0)
}

// A paused download has packets rarely, but it is not idle.
func TestPausedDownloadIsNotIdle(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	c := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	must(t, c.client.SetReadBuffer(4096))
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			if _, err := c.server.Write(buf); err != nil {
				return
			}
		}
	}()
	defer func() {
		_ = c.client.Close()
		_ = c.server.Close()
		<-done
	}()
	r := newReader(lab.Node)
	w := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}, IdleAfter: time.Second})
	always(t, 8*time.Second, "the paused download is open", func() bool {
		c := w.Counts()
		return c.Known && c.Open == 1
	})
	_, once, err := r.Sessions(t.Context(), Target{Addresses: []netip.Addr{lab.PodAddr}, IdleAfter: time.Second})
	if err != nil || once.Open != 1 {
		t.Errorf("one look: %+v, %v; want it open", once, err)
	}
}

// SCTP is tracked, though this machine may have no sockets for it.
func TestSCTP(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	f := inboundFlow(pod4, client4, 5000, 0)
	f.Protocol, f.Timeout = uint8(SCTP), 210
	fill(t, n, slices.Values([]netlab.Flow{f}))
	r := newReader(n)
	w := watch(t, r, Target{Addresses: []netip.Addr{pod4}, Protocols: []Protocol{SCTP}})
	counts(t, w, 1, 0, 0)
	tcp := watch(t, r, Target{Addresses: []netip.Addr{pod4}})
	counts(t, tcp, 0, 0, 0)
	must(t, netlab.Delete(n, f))
	counts(t, w, 0, 0, 0)
}

// Without the right there is a clear error, for a snapshot and for a watch.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{Untracked: true})
	target := Target{Addresses: []netip.Addr{lab.PodAddr}}
	r := newReader(lab.Pod)
	if _, err := r.Watch(t.Context(), target); !errors.Is(err, ErrNotTracking) {
		t.Errorf("watch where nothing is tracked: %v, want ErrNotTracking", err)
	}
	if _, _, err := r.Sessions(t.Context(), target); !errors.Is(err, ErrNotTracking) {
		t.Errorf("sessions where nothing is tracked: %v, want ErrNotTracking", err)
	}
	target.SocketsReported = true
	w, err := r.Watch(t.Context(), target)
	must(t, err)
	must(t, w.Close())

	if _, err := r.Watch(t.Context(), Target{}); err == nil {
		t.Error("a target without an address is accepted")
	}
	k := &faulty{kernel: r.kernel, listenErr: translate("join event groups", unix.EPERM)}
	r.kernel = k
	if _, err := r.Watch(t.Context(), target); !errors.Is(err, ErrPermission) {
		t.Errorf("watch without the right: %v, want ErrPermission", err)
	}
	if err := r.Ready(); err != nil {
		t.Errorf("a kernel that answers is not ready: %v", err)
	}
	k.unreachable = translate("ask for flows", unix.EPERM)
	if err := r.Ready(); !errors.Is(err, ErrPermission) {
		t.Errorf("ready without the right: %v, want ErrPermission", err)
	}
}

// What is tracked is asked of each family, and what the table still holds after
// the rules are gone proves nothing.
func TestNotTrackingIsFoundOut(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	left := inboundFlow(pod4, client4, 5000, 0)
	left.TCPState, left.Timeout = netlab.TCPTimeWait, 100
	fill(t, n, slices.Values([]netlab.Flow{left}))
	r := newReader(n)
	if _, err := r.Watch(t.Context(), Target{Addresses: []netip.Addr{pod4}}); !errors.Is(err, ErrNotTracking) {
		t.Errorf("beside an entry that is over: %v, want ErrNotTracking", err)
	}
	fill(t, n, inbound(pod4, 10))
	w := watch(t, r, Target{Addresses: []netip.Addr{pod4}})
	counts(t, w, 10, 0, 0)
	if _, _, err := r.Sessions(t.Context(), Target{Addresses: []netip.Addr{pod6}}); !errors.Is(err, ErrNotTracking) {
		t.Errorf("the other family: %v, want ErrNotTracking", err)
	}
	t.Run("sockets", func(t *testing.T) {
		target := Target{Addresses: []netip.Addr{other6}, SocketsReported: true}
		w, err := r.Watch(t.Context(), target)
		must(t, err)
		w.Report(SocketReport{At: time.Now()})
		known(t, w)
		if c := w.Counts(); c.Source != FromSockets {
			t.Errorf("%+v, want the sockets to decide", c)
		}
		must(t, w.Close())
		target.Protocols = []Protocol{TCP, UDP}
		if _, err := r.Watch(t.Context(), target); !errors.Is(err, ErrNotTracking) {
			t.Errorf("UDP, of which sockets tell nothing: %v, want ErrNotTracking", err)
		}
	})
}

// An empty table of a namespace that does track is a true zero.
func TestEmptyTableThatTracks(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 0, 0, 0)
}
