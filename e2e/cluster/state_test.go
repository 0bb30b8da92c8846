package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLeftoverIsWhatNobodyOwns(t *testing.T) {
	dir := t.TempDir()
	if !isLeftover(dir) {
		t.Error("a folder that its run had no time to lock is no leftover")
	}
	owner, err := os.Create(filepath.Join(dir, ownerFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(owner.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if isLeftover(dir) {
		t.Error("a cluster whose owner lives is a leftover")
	}
	owner.Close()
	if !isLeftover(dir) {
		t.Error("a cluster whose owner has died is no leftover")
	}
	if err := writeFile(dir, stayFile, nil); err != nil {
		t.Fatal(err)
	}
	if isLeftover(dir) {
		t.Error("a cluster that was started to stay is a leftover")
	}
}
