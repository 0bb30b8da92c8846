package conntrack

import (
	"context"
	"net/netip"
	"time"

	"golang.org/x/net/bpf"
)

// kernel is the seam to the kernel: all that this package asks of it. The one
// that works is netlinkKernel; tests put faults in front of it.
type kernel interface {
	// listen joins the groups of new, changed and ended flows. Messages that the
	// filter drops cost nothing.
	listen(filter []bpf.RawInstruction) (listener, error)
	// dump walks the table and calls each with every message of the answer, whose
	// payload is valid only during the call. It returns when the kernel says that
	// the dump is done, or ctx ends; errNoFilter if it cannot filter.
	dump(ctx context.Context, s selection, each func(message) error) error
	// asker opens a connection for exact questions.
	asker() (asker, error)
	// size reads how large the table is now.
	size() (tableSize, error)
	// limits reads the timeouts that judge sessions.
	limits() (limits, error)
	// reachable asks a question that has no answer: nil means that answers can be
	// had, ErrPermission and ErrUnsupported why not.
	reachable() error
	// probe returns ErrNotTracking if connections of the family are not tracked here
	// at all, or if that could not be found out.
	probe(ctx context.Context, ipv6 bool) error
}

// selection is what a dump has to tell: the flows whose original or reply tuple
// (dirOrig, dirReply) has the IPv4 address as its source, or all flows where
// there is no address.
type selection struct {
	source netip.Addr
	dir    int
}

// listener receives events. receive blocks until there are messages, close is
// called (net.ErrClosed or os.ErrClosed) or events were lost (errOverflow, after
// which it can be used on).
type listener interface {
	setFilter([]bpf.RawInstruction) error
	receive(each func(message) error) error
	// idle says that every event that the kernel has told so far was taken in.
	idle() bool
	close() error
}

// asker answers for single flows without walking the table. It is not safe for
// concurrent use.
type asker interface {
	// ask calls answer once for each key, in any order; nil means that the kernel
	// has no such entry. An error leaves the rest unanswered.
	ask(keys []flowKey, answer func(i int, e *entry)) error
	close() error
}

// tableSize is the size of the kernel's table: entries of this network namespace,
// and hash buckets of the whole machine.
type tableSize struct {
	count, buckets int
}

// limits are the kernel's settings that the judgement of a session depends on.
type limits struct {
	tcpEstablished, tcpUnacknowledged, tcpMaxRetrans time.Duration
	tcpSynSent, tcpClose, tcpTimeWait                time.Duration
	udp, udpStream                                   time.Duration
	sctpEstablished                                  time.Duration
	// events is net.netfilter.nf_conntrack_events: 0 none, 1 for all flows, 2 for
	// flows that are younger than the first listener.
	events int
}

// stalled is the largest remaining life that the kernel gives a TCP session
// whose last packet was not an orderly one: unacknowledged data, a closed window,
// retransmissions, picked up in the middle.
func (l limits) stalled() time.Duration {
	return max(l.tcpUnacknowledged, l.tcpMaxRetrans, l.tcpClose)
}
