package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/e2e/machine"
)

// stateRoot has a folder per cluster, and everything that a cluster makes on this host is in that folder, bound to a
// file of it, or named in one: so a later run can tell what is ours and take it away. It is no setting, because a run
// from another clone must find it too.
const stateRoot = "/var/lib/conndrain-e2e"

const (
	ownerFile      = "owner"   // locked by the process that the cluster belongs to
	stayFile       = "stay"    // there when the cluster belongs to nobody and is to be left alone
	supervisorFile = "machine" // program of each machine's supervisor
)

// clearTimeout is how long killed processes may take to be gone.
const clearTimeout = 2 * time.Minute

var clusters atomic.Int64

// uniqueName is a name that no other cluster has, of this process or of another.
func uniqueName() string { return fmt.Sprintf("test-%d-%d", os.Getpid(), clusters.Add(1)) }

// claim makes the cluster's folder, after it has removed what killed runs left. The lock that it returns is held as long
// as the cluster belongs to this process; when the process dies, the cluster is a leftover.
func claim(name string) (dir string, owner *os.File, err error) {
	unlock, err := lockState()
	if err != nil {
		return "", nil, err
	}
	defer unlock()
	if err := removeLeftovers(); err != nil {
		return "", nil, err
	}
	dir = filepath.Join(stateRoot, name)
	if _, err := os.Stat(dir); err == nil {
		return "", nil, fmt.Errorf("start cluster %s: one of that name is running: stop it first (make cluster-down)", name)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("make state folder: %w", err)
	}
	owner, err = os.Create(filepath.Join(dir, ownerFile))
	if err != nil {
		return "", nil, fmt.Errorf("make owner file: %w", err)
	}
	if err := unix.Flock(int(owner.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		owner.Close()
		return "", nil, fmt.Errorf("lock owner file: %w", err)
	}
	return dir, owner, nil
}

// Clean removes what killed runs left on this host: processes, cgroups, mounts, network namespaces, files. Clusters
// that run, or that were started to stay, are left alone.
func Clean() error {
	unlock, err := lockState()
	if err != nil {
		return err
	}
	defer unlock()
	return removeLeftovers()
}

// Remove stops the cluster of the given name, whoever started it, and removes all that it made on this host. It blocks
// until that is done, for two minutes at most.
func Remove(name string) error {
	unlock, err := lockState()
	if err != nil {
		return err
	}
	defer unlock()
	dir := filepath.Join(stateRoot, name)
	if _, err := os.Stat(dir); !validName.MatchString(name) || err != nil {
		return fmt.Errorf("stop cluster %q: there is none of that name", name)
	}
	if err := remove(dir); err != nil {
		return fmt.Errorf("stop cluster %s: %w", name, err)
	}
	_ = os.Remove(stateRoot) // stays while another cluster is in it
	return nil
}

func removeLeftovers() error {
	entries, err := os.ReadDir(stateRoot)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("look for leftovers: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if dir := filepath.Join(stateRoot, e.Name()); isLeftover(dir) {
			if err := remove(dir); err != nil {
				errs = append(errs, fmt.Errorf("remove leftover of cluster %s: %w", e.Name(), err))
			}
		}
	}
	_ = os.Remove(stateRoot) // stays while a cluster is in it
	return errors.Join(errs...)
}

func isLeftover(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, stayFile)); err == nil {
		return false
	}
	owner, err := os.Open(filepath.Join(dir, ownerFile))
	if err != nil {
		return true // killed before it was anything
	}
	defer owner.Close()
	return unix.Flock(int(owner.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// remove takes away all that the cluster of the folder is: its machines with every process, their cgroups, its mounts
// with the network namespaces, its files. It blocks until they are gone, for clearTimeout at most.
func remove(dir string) error {
	machines, err := machinesIn(dir)
	if err != nil {
		return err
	}
	// first, so that no supervisor of a run that was killed just now can still begin
	if err := os.Remove(filepath.Join(dir, supervisorFile)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove supervisor: %w", err)
	}
	err = poll(clearTimeout, func() error {
		for _, m := range machines {
			_ = m.Group().Freeze(false) // nothing of a paused machine ends; one that is going away cannot be written
		}
		if n := killSupervisors(dir); n > 0 {
			return fmt.Errorf("%d supervisors do not end", n)
		}
		return clearGroups(machines)
	})
	if err != nil {
		return err
	}
	if err := unmountBelow(dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove state folder: %w", err)
	}
	return nil
}

// killSupervisors kills those of the cluster, some of which may be on their way into their cgroup, and returns how many
// there were. Their program is a file of the cluster's folder, also when that is removed.
func killSupervisors(dir string) int {
	links, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is a constant: no error
	killed := 0
	for _, link := range links {
		program, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(program, filepath.Join(dir, supervisorFile)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil && unix.Kill(pid, unix.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}

// clearGroups kills what is in the machines' cgroups and removes those that are empty; it returns what is left.
func clearGroups(machines []machine.Spec) error {
	var errs []error
	for _, m := range machines {
		group := m.Group()
		if n := group.Kill(); n > 0 {
			errs = append(errs, fmt.Errorf("%d processes of machine %s do not end", n, m.Name))
			continue
		}
		errs = append(errs, group.Remove())
	}
	return errors.Join(errs...)
}

func machinesIn(dir string) ([]machine.Spec, error) {
	folders, err := filepath.Glob(filepath.Join(dir, "machines", "*"))
	if err != nil {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	var all []machine.Spec
	for _, folder := range folders {
		spec, err := machine.Open(folder)
		if errors.Is(err, os.ErrNotExist) {
			continue // killed before the machine was written: it has not run
		}
		if err != nil {
			return nil, err
		}
		all = append(all, spec)
	}
	return all, nil
}

// unmountBelow takes away every mount at a path inside of dir, the last one first.
func unmountBelow(dir string) error {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	var targets []string
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			targets = append(targets, fields[4])
		}
	}
	for _, target := range slices.Backward(targets) {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", target, err)
		}
	}
	return nil
}

// lockState lets one process at a time make or remove clusters. The lock is on a folder that is always there.
func lockState() (unlock func(), err error) {
	f, err := os.Open(filepath.Dir(stateRoot))
	if err != nil {
		return nil, fmt.Errorf("open state folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock state folder: %w", err)
	}
	return func() { f.Close() }, nil
}
