package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/conndrain/conndrain/e2e/build"
	"github.com/conndrain/conndrain/e2e/cluster"
)

// hostState is what a cluster could leave behind on this machine, each with its value or with none.
type hostState map[string]string

// marks are in the names of what a cluster, or a program of it that got out of its machine, makes. Others use this machine
// at the same time; they make cgroups, mounts and folders too.
var marks = []string{"conndrain", "nspawn", "machine.slice", "kube", "containerd", "cni"}

func hasMark(name string) bool {
	return slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(name, mark) })
}

// othersClusters says what is of a cluster that somebody else runs on this machine now: it has a folder, and no name of
// this process or of these tests.
func othersClusters(t *testing.T) func(name string) bool {
	t.Helper()
	folders, err := filepath.Glob("/var/lib/conndrain-e2e/*")
	if err != nil {
		t.Fatal(err)
	}
	var others []string
	for _, folder := range folders {
		name := filepath.Base(folder)
		if name != "killed" && !strings.HasPrefix(name, fmt.Sprintf("test-%d-", os.Getpid())) {
			others = append(others, folder, "conndrain-e2e-"+name+"-")
		}
	}
	return func(name string) bool {
		return slices.ContainsFunc(others, func(other string) bool { return strings.Contains(name, other) })
	}
}

// readHost looks at this machine: all of its sysctls and network devices, and of its cgroups, mounts and folders those
// that have a mark.
func readHost(t *testing.T) hostState {
	t.Helper()
	state := hostState{}
	others := othersClusters(t)
	walk := func(dir string, keep func(path string, d fs.DirEntry)) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil { // else it is not there, or gone while it was read
				keep(path, d)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	walk("/proc/sys", func(path string, d fs.DirEntry) {
		if d.Type().IsRegular() && !changesByItself(path) {
			b, _ := os.ReadFile(path) // some can only be written
			state[path] = string(b)
		}
	})
	walk("/sys/class/net", func(path string, _ fs.DirEntry) { state[path] = "" })
	for _, dir := range []string{"/sys/fs/cgroup", "/run", "/etc", "/var/lib"} {
		walk(dir, func(path string, d fs.DirEntry) {
			if d.IsDir() && hasMark(path) && !others(path) {
				state[path] = ""
			}
		})
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if hasMark(line) && !others(line) {
			state["mount "+line] = ""
		}
	}
	return state
}

// changesByItself are sysctls that count or are random.
func changesByItself(path string) bool {
	return slices.ContainsFunc([]string{
		"/fs/dentry-state", "/fs/inode-nr", "/fs/inode-state", "/fs/file-nr", "/fs/aio-nr", "/fs/quota/",
		"/kernel/random/", "/kernel/ns_last_pid", "/kernel/pty/nr", "/netfilter/nf_conntrack_count", "/kernel/keys/",
		"/sunrpc/transports", "/kernel/perf_event_max_sample_rate", "/net/ipv4/tcp_fastopen_key", "/stable_secret",
		"/route/flush", "/vm/stat_refresh", "/vm/compact_memory", "/vm/drop_caches",
	}, func(s string) bool { return strings.Contains(path, s) }) || strings.Contains(path, "/net/ipv4/neigh/")
}

// differences of this machine to what it was. What others on it have taken away is none.
func (before hostState) differences(after hostState) []string {
	var all []string
	for what, value := range after {
		if old, ok := before[what]; !ok {
			all = append(all, "left: "+what)
		} else if old != value {
			all = append(all, fmt.Sprintf("changed: %s from %q to %q", what, old, value))
		}
	}
	slices.Sort(all)
	return all
}

// expectHost blocks until this machine is as it was and the namespaces are no more. Others on it may come and go
// meanwhile; what stays fails the test.
func expectHost(t *testing.T, before hostState, ours namespaces) {
	t.Helper()
	eventually(t, "this machine is as before", func(context.Context) error {
		if all := before.differences(readHost(t)); len(all) > 0 {
			return fmt.Errorf("%d differences:\n%s", len(all), strings.Join(all[:min(20, len(all))], "\n"))
		}
		for cookie, pid := range readNamespaces(t) {
			if _, ok := ours[cookie]; ok {
				return fmt.Errorf("process %s is in a network namespace of the cluster", pid)
			}
		}
		return nil
	})
}

func TestHostIsUnchanged(t *testing.T) {
	if err := cluster.Clean(); err != nil {
		t.Fatal(err)
	}
	before := readHost(t)
	var ours namespaces
	t.Run("while a cluster runs", func(t *testing.T) {
		c := startFor(t, cluster.Options{Families: cluster.DualStack})
		newSpace(t, c).serve(server{name: "web", node: "n1", onTerm: "exit", grace: 30, dual: true})
		ours = clusterNamespaces(t)
		if len(ours) < 3 { // of the control plane, of the node, of its pod
			t.Errorf("the cluster has %d network namespaces with processes", len(ours))
		}
		if len(before.differences(readHost(t))) == 0 {
			t.Error("a cluster that runs is not seen on this machine: this test looks at the wrong things")
		}
		eventually(t, "settings of this machine are as before", func(context.Context) error {
			for _, what := range before.differences(readHost(t)) {
				if strings.HasPrefix(what, "changed: ") {
					return errors.New(what)
				}
			}
			return nil
		})
	})
	expectHost(t, before, ours)
}

// handTool builds ./cmd/cluster.
func handTool(t *testing.T) string {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "cluster")
	if err := build.Program(t.Context(), "./cmd/cluster", tool); err != nil {
		t.Fatal(err)
	}
	return tool
}

// A run that is killed cannot clean up: the next one does, whatever the run had made so far.
func TestKilledRunIsCleaned(t *testing.T) {
	tool := handTool(t)
	if err := cluster.Clean(); err != nil {
		t.Fatal(err)
	}
	before := readHost(t)
	for _, moment := range []string{"network, certificates", "machines booted", "nodes ready"} {
		t.Run(moment, func(t *testing.T) {
			// a run that does not stay, like that of a test
			cmd := exec.CommandContext(t.Context(), tool, "up", "-foreground", "-nodes=1", "-name=killed")
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for lines := bufio.NewScanner(stderr); lines.Scan(); {
				if strings.Contains(lines.Text(), moment) {
					break
				}
			}
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed
			ours := clusterNamespaces(t)
			if _, err := os.Stat("/var/lib/conndrain-e2e/killed"); err != nil {
				t.Fatalf("the killed run left nothing: %v", err)
			}
			if err := cluster.Clean(); err != nil {
				t.Fatal(err)
			}
			expectHost(t, before, ours)
		})
	}
}

func TestClusterNeedsRoot(t *testing.T) {
	tool := handTool(t)
	for dir := filepath.Dir(tool); dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), tool, "up", "-name=nobody")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "it needs root: run it with sudo") {
		t.Errorf("cluster up as nobody: %v\n%s", err, out)
	}
}

// A component that cannot start is named, with its own words and its log, and nothing else is left.
func TestComponentThatDies(t *testing.T) {
	_, err := start(t.Context(), cluster.Options{Name: "dies", FeatureGates: map[string]bool{"NoSuchFeature": true}})
	if err == nil {
		t.Fatal("a cluster with an unknown feature gate has started")
	}
	for _, want := range []string{"kube-apiserver on control does not start", "unrecognized feature gate: NoSuchFeature"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
	_, logs, _ := strings.Cut(err.Error(), "logs are in ")
	if _, err := os.Stat(filepath.Join(logs, "control", "kube-apiserver.log")); err != nil {
		t.Errorf("kept logs: %v", err)
	}
	if err := os.RemoveAll(logs); err != nil {
		t.Error(err)
	}
	if _, err := cluster.Open("dies"); err == nil || !strings.Contains(err.Error(), "there is none") {
		t.Errorf("open the cluster that did not start: %v", err)
	}
}

func TestOneClusterOfAName(t *testing.T) {
	c := startFor(t, cluster.Options{Name: "twice"})
	_, err := start(t.Context(), c.Options)
	if err == nil || !strings.Contains(err.Error(), "one of that name is running") {
		t.Errorf("second cluster of the name: %v", err)
	}
	found, err := cluster.Open("twice")
	if err != nil {
		t.Fatal(err)
	}
	n, err := found.Node("n1")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.AwaitReady(t.Context()); err != nil {
		t.Errorf("node of the cluster that was opened: %v", err)
	}
	if _, err := found.Node("n2"); err == nil || !strings.Contains(err.Error(), "n1 to n1") {
		t.Errorf("node that is not there: %v", err)
	}
	if n, err = c.Node("n1"); err != nil {
		t.Fatal(err)
	}
	if err := n.Pause(t.Context()); err != nil {
		t.Fatal(err) // and the cluster's end has to take a paused machine along
	}
}
