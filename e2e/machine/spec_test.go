package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpecIsFoundByItsFolder(t *testing.T) {
	want := Spec{Name: "a", Host: "n1", Dir: filepath.Join(t.TempDir(), "n1"), Cgroup: "g", Binds: []Bind{{"/x", "/y", true}}}
	if err := want.Write(); err != nil {
		t.Fatal(err)
	}
	got, err := Open(want.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if _, err := got.BootID(t.Context()); !errors.Is(err, ErrDown) {
		t.Errorf("boot id of a machine that never ran: %v, want ErrDown", err)
	}

	moved := want.Dir + "-moved"
	if err := os.Rename(want.Dir, moved); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(moved); err == nil || !strings.Contains(err.Error(), "was moved") {
		t.Errorf("open a folder that was moved: %v", err)
	}
}

func TestEveryCgroupOfAMachineIsRemembered(t *testing.T) {
	s := Spec{Name: "a", Dir: t.TempDir(), Cgroup: "g"}
	if got := s.Group().paths; len(got) != 0 {
		t.Errorf("a machine that never ran has cgroups %v", got)
	}
	for _, paths := range [][]string{{"/one/g", "/two/g"}, {"/one/g"}, {"/three/g"}} {
		if err := s.recordGroup(Group{paths}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"/one/g", "/two/g", "/three/g"}, s.Group().paths); diff != "" {
		t.Errorf("cgroups (-want +got):\n%s", diff)
	}
}

func TestOwnGroupIsInEveryHierarchy(t *testing.T) {
	g, err := OwnGroup("conndrain-e2e-unit-test")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range g.paths {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "cgroup.procs")); err != nil {
			t.Errorf("%s is below no cgroup: %v", path, err)
		}
	}
	if !g.Empty() || g.Kill() != 0 {
		t.Error("a group that was not made has processes")
	}
	if err := g.Remove(); err != nil {
		t.Errorf("remove a group that was not made: %v", err)
	}
}
