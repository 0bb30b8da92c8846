package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// CacheDir is where everything that is built once is kept: outside of the clone, so that a new clone builds nothing.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w; set HOME or XDG_CACHE_HOME", err)
	}
	dir = filepath.Join(dir, "conndrain")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	return dir, nil
}

// lockCache waits until no other run fills the cache and returns the call that lets the next one go on. The lock dies
// with the process.
func lockCache(dir string, say func(string, ...any)) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open cache lock: %w", err)
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		say("another run is building into %s: waiting for it", dir)
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock cache: %w", err)
		}
	}
	return func() { f.Close() }, nil
}

// entry is one thing in the cache. It is there whole or not at all: it is filled under another name and then renamed.
type entry struct {
	cache string // CacheDir
	name  string
	key   string // of everything that it is made of
}

func (e entry) path() string { return filepath.Join(e.cache, e.name+"-"+e.key) }

func (e entry) exists() bool {
	_, err := os.Stat(e.path())
	return err == nil
}

// fill calls content with an empty folder and keeps it under the entry's path. What a killed run left half made is removed
// first; entries of other versions stay, because another clone may use them.
func (e entry) fill(content func(dir string) error) error {
	tmp := e.path() + ".part"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("remove half-made %s: %w", e.name, err)
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return fmt.Errorf("make folder of %s: %w", e.name, err)
	}
	if err := content(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, e.path()); err != nil {
		return fmt.Errorf("keep %s: %w", e.name, err)
	}
	return nil
}

// keyOf is a short hash of the files' contents and the words.
func keyOf(files []string, words ...string) (string, error) {
	h := sha256.New()
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", filepath.Base(name), err)
		}
		fmt.Fprintf(h, "%d\n", len(b))
		h.Write(b)
	}
	fmt.Fprintf(h, "%q %s", words, runtime.GOARCH)
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// RequireSpace fails when the file system of dir has less than the given space left.
func RequireSpace(dir string, gigabytes uint64, what string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize) >> 30; free < gigabytes {
		return fmt.Errorf("%s needs %d GB of free space below %s and there are %d: make room",
			what, gigabytes, dir, free)
	}
	return nil
}
