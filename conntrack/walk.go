package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// SnapshotMode says how a snapshot is taken.
type SnapshotMode uint8

// The snapshot modes. The zero value is Auto.
const (
	// Auto filters in the kernel for few IPv4 addresses on a table of moderate
	// size, and streams otherwise.
	Auto SnapshotMode = iota
	// Filter lets the kernel filter, one walk for each IPv4 address. On a large
	// table each walk holds a CPU with bottom halves off until it is done. IPv6
	// addresses are streamed all the same.
	Filter
	// Stream reads the whole table in small pieces and filters here.
	Stream
)

var snapshotModeNames = [...]string{Auto: "auto", Filter: "filter", Stream: "stream"}

// String returns the word that ParseSnapshotMode reads.
func (m SnapshotMode) String() string {
	if int(m) < len(snapshotModeNames) {
		return snapshotModeNames[m]
	}
	return fmt.Sprintf("snapshot mode %d", uint8(m))
}

// ParseSnapshotMode reads auto, filter or stream.
func ParseSnapshotMode(s string) (SnapshotMode, error) {
	if i := slices.Index(snapshotModeNames[:], s); i >= 0 {
		return SnapshotMode(i), nil
	}
	return 0, fmt.Errorf("unknown snapshot mode %q: use auto, filter or stream", s)
}

const (
	// filterUpTo is the table size up to which a walk that matches nothing holds a
	// CPU for no longer than some ten milliseconds a walk (38 ms at 100k).
	filterUpTo = 200_000
	// filterWalks is how many filtered walks cost as much as one streamed one.
	filterWalks = 8
	// walkTries bounds how often a snapshot begins anew because the table was
	// resized under it.
	walkTries = 5
)

// wish is what one address needs of a snapshot.
type wish struct {
	addr netip.Addr
	// original asks for the entries with the address as their original source,
	// too.
	original bool
}

// selections returns the filtered dumps that answer the wishes, or the one of all
// flows where that is the better or the only way.
func (m SnapshotMode) selections(wishes []wish, size tableSize) []selection {
	everything := []selection{{}}
	var filtered []selection
	for _, w := range wishes {
		if !w.addr.Is4() {
			return everything
		}
		filtered = append(filtered, selection{source: w.addr, dir: dirReply})
		if w.original {
			filtered = append(filtered, selection{source: w.addr, dir: dirOrig})
		}
	}
	if m == Stream || m == Auto && (size.count > filterUpTo || len(filtered) > filterWalks) {
		return everything
	}
	return filtered
}

// take is one snapshot: the flows that it wants are handed to apply while the
// walk goes on, some at a time, with the times between which the kernel told them.
type take struct {
	kernel kernel
	mode   SnapshotMode
	wishes []wish
	wanted func(*entry) bool
	apply  func(es []entry, asked, answered time.Time)
	// batch are flows that are still to be applied.
	batch []entry
}

// applyBatch is how many flows are applied at once: locking for each of them
// would make a walk wait for every reader of the counts.
const applyBatch = 256

// run takes the snapshot. When it returns nil, every flow that lived throughout
// was applied. A resize of the table makes the kernel skip and repeat entries
// without a word, so the walk is done again then. It blocks until the kernel has
// answered or ctx ends.
func (t *take) run(ctx context.Context) error {
	before, err := t.kernel.size()
	if err != nil {
		return err
	}
	doubted := false
	for range walkTries {
		selections := t.mode.selections(t.wishes, before)
		told, err := t.walk(ctx, selections)
		if errors.Is(err, errNoFilter) {
			selections = []selection{{}}
			told, err = t.walk(ctx, selections)
		}
		if errors.Is(err, errResized) {
			continue
		}
		if err != nil {
			return err
		}
		after, err := t.kernel.size()
		if err != nil {
			return err
		}
		switch {
		case after.buckets != before.buckets:
		case !selections[0].source.IsValid() && short(told, before, after) && !doubted:
			// Resized and back again, or only many entries that have run out and
			// still wait to be collected: a second walk makes sure.
			doubted = true
		default:
			return nil
		}
		before = after
	}
	return errResized
}

// short says that a walk told clearly fewer flows than the table has.
func short(told int, before, after tableSize) bool {
	return told < min(before.count, after.count)*95/100-64
}

// walk does the dumps and returns how many flows the kernel told.
func (t *take) walk(ctx context.Context, selections []selection) (int, error) {
	told := 0
	for _, s := range selections {
		n, err := t.dump(ctx, s)
		if err != nil {
			return 0, err
		}
		told += n
	}
	return told, nil
}

func (t *take) dump(ctx context.Context, s selection) (int, error) {
	told := 0
	var e entry
	asked := time.Now()
	err := t.kernel.dump(ctx, s, func(m message) error {
		if m.typ != msgNew {
			return nil
		}
		told++
		ok, err := e.decode(m.payload, t.wanted)
		if err != nil || !ok {
			return err
		}
		if t.batch = append(t.batch, e); len(t.batch) == applyBatch {
			t.flush(asked)
		}
		return nil
	})
	t.flush(asked)
	return told, err
}

// flush applies what has come together.
func (t *take) flush(asked time.Time) {
	if len(t.batch) > 0 {
		t.apply(t.batch, asked, time.Now())
		t.batch = t.batch[:0]
	}
}
