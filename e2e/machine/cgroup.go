package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const cgroupRoot = "/sys/fs/cgroup"

// Group is the cgroup of one name in every hierarchy of this host: version 1 controllers, version 2, or both.
type Group struct{ paths []string }

// OwnGroup is the group of the given name below the one that this process is in, so that nothing leaves the accounting
// of whoever started it. The group need not exist.
func OwnGroup(name string) (Group, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return Group{}, fmt.Errorf("read own cgroup: %w", err)
	}
	var g Group
	for line := range strings.Lines(string(b)) {
		// "4:memory:/a/b", "9:name=systemd:/" and, for version 2, "0::/"
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			return Group{}, fmt.Errorf("read own cgroup: unknown line %q", line)
		}
		for _, mount := range hierarchy(strings.TrimPrefix(fields[1], "name=")) {
			if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err == nil {
				g.paths = append(g.paths, filepath.Join(mount, fields[2], name))
				break
			}
		}
	}
	if len(g.paths) == 0 {
		return Group{}, errors.New("find cgroups below " + cgroupRoot + ": none is mounted there; mount them as systemd does")
	}
	return g, nil
}

// hierarchy lists where the one with the given controllers may be mounted; version 2 has none in its line.
func hierarchy(controllers string) []string {
	if controllers == "" {
		return []string{filepath.Join(cgroupRoot, "unified"), cgroupRoot}
	}
	return []string{filepath.Join(cgroupRoot, controllers)}
}

// Enter makes the group where it is missing and moves this process, with all that it will start, into it.
func (g Group) Enter() error {
	for _, path := range g.paths {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		// a group of the cpuset hierarchy takes no process before it has cores and memory nodes
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(path), name))
			if err != nil {
				continue // another hierarchy
			}
			if err := os.WriteFile(filepath.Join(path, name), b, 0o644); err != nil {
				return fmt.Errorf("fill %s of cgroup: %w", name, err)
			}
		}
		if err := os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("enter cgroup %s: %w", path, err)
		}
	}
	return nil
}

// Kill sends SIGKILL to every process of the group and of those below it, thawing it first: a frozen process dies only
// then. It returns how many there were; the caller repeats until there is none.
func (g Group) Kill() int {
	_ = g.Freeze(false) // a group that is going away cannot be written
	killed := 0
	for _, pid := range g.processes() {
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// Freeze stops every process of the group where it is, or lets them all go on. It does not wait for the last one.
func (g Group) Freeze(on bool) error {
	for _, file := range []struct{ name, frozen, thawed string }{
		{"freezer.state", "FROZEN", "THAWED"}, // version 1
		{"cgroup.freeze", "1", "0"},
	} {
		for _, path := range g.paths {
			name := filepath.Join(path, file.name)
			if _, err := os.Stat(name); err != nil {
				continue
			}
			value := file.thawed
			if on {
				value = file.frozen
			}
			if err := os.WriteFile(name, []byte(value), 0o644); err != nil {
				return fmt.Errorf("freeze cgroup: %w", err)
			}
			return nil
		}
	}
	return errors.New("freeze cgroup: no hierarchy of it can freeze; mount the freezer controller")
}

// Frozen tells whether the last process has stopped.
func (g Group) Frozen() bool {
	for _, path := range g.paths {
		if b, err := os.ReadFile(filepath.Join(path, "freezer.state")); err == nil {
			return strings.TrimSpace(string(b)) == "FROZEN"
		}
	}
	for _, path := range g.paths {
		if b, err := os.ReadFile(filepath.Join(path, "cgroup.events")); err == nil {
			return strings.Contains(string(b), "frozen 1")
		}
	}
	return false
}

// Remove removes the group and those below it. It fails while a process is in one of them.
func (g Group) Remove() error {
	var errs []error
	for _, path := range g.paths {
		var dirs []string
		_ = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, name)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}

// processes lists every process of the group and of those below it, once.
func (g Group) processes() []int {
	seen := map[int]bool{}
	var pids []int
	for _, path := range g.paths {
		_ = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Name() != "cgroup.procs" {
				return nil
			}
			b, _ := os.ReadFile(name) // a group that went away while it was read has none
			for field := range strings.FieldsSeq(string(b)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 0 && !seen[pid] {
					seen[pid] = true
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	return pids
}

// Empty tells whether no process is in the group or below it.
func (g Group) Empty() bool { return len(g.processes()) == 0 }
