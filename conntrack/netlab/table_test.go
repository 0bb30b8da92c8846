//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// raiseAndHang raises the table that its environment names and waits for its end.
func raiseAndHang() error {
	t := table{os.Getenv("LOCK"), os.Getenv("MAX"), os.Getenv("BUCKETS")}
	now, err := t.read()
	if err != nil {
		return err
	}
	if _, err := t.raise(size{max: now.max + 1}, time.Minute); err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

// startHolder starts raiseAndHang and returns it and its guard.
func startHolder(t *testing.T, of table) (*exec.Cmd, int) {
	t.Helper()
	cmd := child(t, "hold", "LOCK="+of.lock, "MAX="+of.max, "BUCKETS="+of.buckets)
	startChild(t, cmd)
	return cmd, guardOf(t, of)
}

// guardOf finds the guard of a lock file: it has it as its first argument.
func guardOf(t *testing.T, of table) int {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		b, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if args := strings.Split(string(b), "\x00"); err == nil && len(args) > 3 && args[1] == of.lock {
			pid, err := strconv.Atoi(filepath.Base(p))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("no guard of %s", of.lock)
	return 0
}

// fakeTable is a table of plain files.
func fakeTable(t *testing.T) table {
	t.Helper()
	dir := t.TempDir()
	f := table{filepath.Join(dir, "lock"), filepath.Join(dir, "max"), filepath.Join(dir, "buckets")}
	for path, v := range map[string]string{f.max: "1000\n", f.buckets: "500\n"} {
		if err := os.WriteFile(path, []byte(v), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (t table) mustBe(tb testing.TB, want size) {
	tb.Helper()
	got, err := t.read()
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(size{})); diff != "" {
		tb.Error(diff)
	}
}

func (t table) locked() bool {
	_, err := os.Stat(t.lock)
	return !errors.Is(err, fs.ErrNotExist)
}

func TestRaise(t *testing.T) {
	f := fakeTable(t)
	h, err := f.raise(size{2000, 900}, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.mustBe(t, size{2000, 900})
	if _, err := f.raise(size{3000, 0}, 0); err == nil || !strings.Contains(err.Error(), fmt.Sprint("held by process ", os.Getpid())) {
		t.Errorf("raise a held table: %v", err)
	}
	if err := f.repair(); err != nil {
		t.Error(err)
	}
	f.mustBe(t, size{2000, 900})
	if err := h.release(); err != nil {
		t.Error(err)
	}
	f.mustBe(t, size{1000, 500})
	if f.locked() {
		t.Error("the lock file is still there")
	}
}

func TestRaiseWaitsForTheHolder(t *testing.T) {
	f := fakeTable(t)
	h, err := f.raise(size{2000, 0}, 0)
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	go func() {
		h, err := f.raise(size{3000, 0}, time.Minute)
		if err == nil {
			err = h.release()
		}
		second <- err
	}()
	if err := h.release(); err != nil {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	f.mustBe(t, size{1000, 500})
}

func TestGuardRestoresAfterKill(t *testing.T) {
	f := fakeTable(t)
	holder, guard := startHolder(t, f)
	f.mustBe(t, size{1001, 500})
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if err := syscall.Kill(guard, s); err != nil {
			t.Fatal(err)
		}
	}
	f.mustBe(t, size{1001, 500})
	kill(t, holder)
	eventually(t, "the lock file is gone", func() bool { return !f.locked() })
	f.mustBe(t, size{1000, 500})
}

func TestRepairAfterAllWereKilled(t *testing.T) {
	f := fakeTable(t)
	holder, guard := startHolder(t, f)
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kill(t, holder)
	f.mustBe(t, size{1001, 500})
	eventually(t, "a start repairs the values", func() bool {
		// The killed guard may hold the lock for a moment.
		if err := f.repair(); err != nil {
			t.Fatal(err)
		}
		return !f.locked()
	})
	f.mustBe(t, size{1000, 500})
}

func TestRaiseRepairsFirst(t *testing.T) {
	f := fakeTable(t)
	holder, guard := startHolder(t, f)
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kill(t, holder)
	h, err := f.raise(size{2000, 0}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	f.mustBe(t, size{2000, 500})
	if err := h.release(); err != nil {
		t.Error(err)
	}
	f.mustBe(t, size{1000, 500})
}

func TestReleaseWithoutGuard(t *testing.T) {
	f := fakeTable(t)
	h, err := f.raise(size{2000, 0}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.guard.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := h.release(); err != nil {
		t.Error(err)
	}
	f.mustBe(t, size{1000, 500})
	if f.locked() {
		t.Error("the lock file is still there")
	}
}

func TestReleaseThatCannotRestore(t *testing.T) {
	f := fakeTable(t)
	h, err := f.raise(size{2000, 0}, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A directory in its place cannot be written by root either.
	if err := errors.Join(os.Remove(f.max), os.Mkdir(f.max, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := h.release(); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("restore what cannot be written: %v", err)
	}
	if !f.locked() {
		t.Error("the lock file, which remembers the old values, is gone")
	}
}

func TestRepairLeavesAForeignFileAlone(t *testing.T) {
	f := fakeTable(t)
	if err := os.WriteFile(f.lock, []byte("max 7\nbuck"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.repair(); err != nil {
		t.Error(err)
	}
	f.mustBe(t, size{1000, 500})
}

func TestRaiseNeedsRights(t *testing.T) {
	err := newNamespace(t).Do(hostTable.writable)
	if err == nil || !strings.Contains(err.Error(), "initial network namespace") {
		t.Errorf("raise inside another namespace: %v", err)
	}
	missing := fakeTable(t)
	missing.max += "-not-there"
	if _, err := missing.raise(size{1, 1}, 0); err == nil || !strings.Contains(err.Error(), "no connection tracking") {
		t.Errorf("raise without connection tracking: %v", err)
	}
}

// The machine's own values, in steps of one that nobody feels. The number of
// buckets stays: a new one would disturb tests that read tables.
func TestHostTable(t *testing.T) {
	entries, buckets, err := TableSize()
	if err != nil {
		t.Fatal(err)
	}
	if err := ResizeTable(entries, buckets); err == nil {
		t.Error("resize without a hold worked")
	}
	restore, err := RaiseTable(entries+2, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := restore(); err != nil {
				t.Error(err)
			}
		}
		hostTable.mustBe(t, size{entries, buckets})
		if hostTable.locked() {
			t.Error("the lock file is still there")
		}
	})
	hostTable.mustBe(t, size{entries + 2, buckets})
	if _, err := RaiseTable(0, 0); err == nil {
		t.Error("a second raise in one process worked")
	}
	if err := ResizeTable(entries+3, buckets); err != nil {
		t.Error(err)
	}
	hostTable.mustBe(t, size{entries + 3, buckets})

	// A holder that is killed, under a lock of its own while this test holds the
	// real one.
	nested := hostTable
	nested.lock = filepath.Join(t.TempDir(), "lock")
	holder, _ := startHolder(t, nested)
	hostTable.mustBe(t, size{entries + 4, buckets})
	kill(t, holder)
	eventually(t, "the guard has put the values back", func() bool { return !nested.locked() })
	hostTable.mustBe(t, size{entries + 3, buckets})
}
