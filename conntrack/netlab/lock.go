//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// acquire opens and locks the lock file.
func (t table) acquire(wait time.Duration) (*os.File, error) {
	deadline := time.After(wait)
	for {
		f, err := os.OpenFile(t.lock, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		ok, err := t.tryLock(f)
		if ok {
			return f, nil
		}
		holder := lockHolder(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		select {
		case <-deadline:
			return nil, fmt.Errorf("%s is held by process %s: wait for it to end", t.lock, holder)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tryLock locks an opened lock file. It is not ours where it was removed since.
func (t table) tryLock(f *os.File) (bool, error) {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return false, fmt.Errorf("lock %s: %w", t.lock, err)
	}
	return t.isAt(f)
}

// repair puts back what a holder left that was killed together with its guard.
// Nothing happens while a holder lives, or without the right to.
func (t table) repair() error {
	f, err := os.OpenFile(t.lock, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	ok, err := t.tryLock(f)
	if !ok {
		return err
	}
	return t.restore(f)
}

// restore puts back what the locked file f remembers and removes it. On an error
// the file stays, for the next start to try again.
func (t table) restore(f *os.File) error {
	old, ok, err := remembered(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", t.lock, err)
	}
	if ok {
		if err := t.write(old); err != nil {
			return fmt.Errorf("restore the table's size: %w", err)
		}
	}
	// Whoever locked the file before has removed it, and this may be another's.
	if ours, err := t.isAt(f); !ours {
		return err
	}
	return os.Remove(t.lock)
}

// isAt says whether an opened lock file is still the one at its path.
func (t table) isAt(f *os.File) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(t.lock)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, there), err
}

// remember writes the old values and the holder into the locked file.
func remember(f *os.File, s size) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(fmt.Appendf(nil, "max %d\nbuckets %d\npid %d\n", s.max, s.buckets, os.Getpid()), 0)
	return err
}

// remembered reads them. A file that was never written whole holds nothing: the
// values are changed only afterwards.
func remembered(f *os.File) (size, bool, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	if err != nil {
		return size{}, false, err
	}
	var s size
	var pid int
	n, _ := fmt.Sscanf(string(b), "max %d\nbuckets %d\npid %d\n", &s.max, &s.buckets, &pid)
	return s, n == 3 && s.max > 0 && s.buckets > 0, nil
}

// lockHolder names the process that a lock file is of.
func lockHolder(f *os.File) string {
	b, _ := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	_, pid, ok := strings.Cut(string(b), "\npid ")
	if !ok {
		return "unknown"
	}
	return strings.TrimSpace(pid)
}
