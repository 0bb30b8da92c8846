//go:build linux

package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// table is the size of the machine's connection tracking table: two values of
// the kernel and the lock file that remembers what they were.
type table struct {
	lock, max, buckets string
}

// hostTable is the real one. /run is root's alone and empty after a boot, as the
// values are.
var hostTable = table{
	lock:    "/run/conndrain-conntrack-table.lock",
	max:     "/proc/sys/net/netfilter/nf_conntrack_max",
	buckets: "/proc/sys/net/netfilter/nf_conntrack_buckets",
}

// lockWait is how long RaiseTable waits for another holder.
const lockWait = 2 * time.Minute

// size is what the two values are.
type size struct {
	max, buckets int
}

var (
	// guarded is set once GuardTable ran.
	guarded atomic.Bool
	// raised is the hold of this process, if it has one.
	raised struct {
		sync.Mutex
		hold *hold
	}
)

// RaiseTable sets the machine's nf_conntrack_max and nf_conntrack_buckets; 0
// leaves one as it is. It is the only thing here that changes the host. It
// blocks while another process holds the table, for two minutes at most.
//
// restore puts the old values back, and so does a guard process of its own when
// this process ends in any other way, SIGKILL included. Where that was killed
// too, the next GuardTable or RaiseTable on this machine repairs the values.
//
// The program must call GuardTable before anything else. It needs root in the
// initial network namespace and a writable /proc/sys.
func RaiseTable(entries, buckets int) (restore func() error, err error) {
	if !guarded.Load() {
		return nil, errors.New("raise table: call netlab.GuardTable first thing in main or TestMain")
	}
	raised.Lock()
	defer raised.Unlock()
	if raised.hold != nil {
		return nil, errors.New("raise table: this process has raised it already, use ResizeTable")
	}
	h, err := hostTable.raise(size{entries, buckets}, lockWait)
	if err != nil {
		return nil, fmt.Errorf("raise table: %w", err)
	}
	raised.hold = h
	return sync.OnceValue(func() error {
		raised.Lock()
		defer raised.Unlock()
		raised.hold = nil
		return h.release()
	}), nil
}

// ResizeTable sets the two values again while RaiseTable's change lasts. 0
// leaves one as it is. A change of buckets makes the kernel rebuild its hash.
func ResizeTable(entries, buckets int) error {
	raised.Lock()
	defer raised.Unlock()
	if raised.hold == nil {
		return errors.New("resize table: call RaiseTable first")
	}
	return hostTable.write(size{entries, buckets})
}

// TableSize reads the machine's nf_conntrack_max and nf_conntrack_buckets.
func TableSize() (entries, buckets int, err error) {
	s, err := hostTable.read()
	return s.max, s.buckets, err
}

// raise takes the lock, repairs what a killed holder left, and sets the values
// under a guard.
func (t table) raise(s size, wait time.Duration) (*hold, error) {
	if err := t.writable(); err != nil {
		return nil, err
	}
	f, err := t.acquire(wait)
	if err != nil {
		return nil, err
	}
	h, err := t.hold(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := t.write(s); err != nil {
		return nil, errors.Join(err, h.release())
	}
	return h, nil
}

// writable returns an error that names the missing right.
func (t table) writable() error {
	for _, p := range []string{t.max, t.buckets} {
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		switch {
		case err == nil:
			_ = f.Close()
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: the kernel has no connection tracking", err)
		default:
			return fmt.Errorf("%w: only root may, in the machine's initial network namespace and where /proc/sys is writable: run it as root on the machine itself, not in a container", err)
		}
	}
	return nil
}

// read reads both values.
func (t table) read() (size, error) {
	var s size
	for _, v := range []struct {
		path string
		to   *int
	}{{t.max, &s.max}, {t.buckets, &s.buckets}} {
		b, err := os.ReadFile(v.path)
		if err != nil {
			return size{}, err
		}
		if *v.to, err = strconv.Atoi(string(bytes.TrimSpace(b))); err != nil {
			return size{}, fmt.Errorf("read %s: %w", v.path, err)
		}
	}
	return s, nil
}

// write sets both values. One that is 0 or right already is left alone, because
// to write the number of buckets is to rebuild the hash.
func (t table) write(s size) error {
	now, err := t.read()
	if err != nil {
		return err
	}
	for _, v := range []struct {
		path      string
		now, want int
	}{{t.max, now.max, s.max}, {t.buckets, now.buckets, s.buckets}} {
		if v.want == 0 || v.want == v.now {
			continue
		}
		if err := os.WriteFile(v.path, []byte(strconv.Itoa(v.want)), 0); err != nil {
			return fmt.Errorf("set to %d: %w", v.want, err)
		}
	}
	return nil
}
