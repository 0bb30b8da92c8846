//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func printNamespace() error {
	link, err := os.Readlink("/proc/self/ns/net")
	fmt.Println(link)
	return err
}

func TestDoRunsInside(t *testing.T) {
	host, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	a, b := newNamespace(t), newNamespace(t)
	seen := map[string]bool{host: true}
	for _, n := range []*Namespace{a, b} {
		var thread, process string
		err := n.Do(func() error {
			var err error
			if thread, err = os.Readlink("/proc/thread-self/ns/net"); err != nil {
				return err
			}
			out, err := child(t, "namespace").Output()
			process = strings.TrimSpace(string(out))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if seen[thread] {
			t.Errorf("thread is in %s, which is not a namespace of its own", thread)
		}
		seen[thread] = true
		if process != thread {
			t.Errorf("child process is in %s, want %s", process, thread)
		}
	}
}

func TestDoLeavesTheProcessAlone(t *testing.T) {
	n := newNamespace(t)
	before, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if err := n.Do(func() error { runtime.Gosched(); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		after, err := os.Readlink("/proc/self/task/" + task.Name() + "/ns/net")
		if errors.Is(err, fs.ErrNotExist) {
			continue // a thread of Do that is just ending
		}
		if err == nil && task.Name() == fmt.Sprint(os.Getpid()) && after != before {
			t.Errorf("the process's first thread is in %s, began in %s", after, before)
		}
	}
	// Threads of Do may take a moment to end, but none stays.
	eventually(t, "all threads are back in the process's namespace", func() bool {
		tasks, err := os.ReadDir("/proc/self/task")
		return err == nil && !slices.ContainsFunc(tasks, func(e os.DirEntry) bool {
			ns, err := os.Readlink("/proc/self/task/" + e.Name() + "/ns/net")
			return err == nil && ns != before
		})
	})
}

func TestDoAfterGoexit(t *testing.T) {
	err := newNamespace(t).Do(func() error { runtime.Goexit(); return nil })
	if !errors.Is(err, errGoexit) {
		t.Errorf("got %v, want %v", err, errGoexit)
	}
}

func TestClose(t *testing.T) {
	n := newNamespace(t)
	for range 2 {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n.FD() != -1 {
		t.Errorf("FD of a closed namespace is %d", n.FD())
	}
	lo := netip.MustParsePrefix("192.0.2.1/32")
	for name, err := range map[string]error{
		"Do": n.Do(func() error { return nil }), "Address": n.Address("lo", lo), "Track": n.Track(),
		"Connect": Connect(newNamespace(t), "a", nil, n, "b", nil), "Flush": Flush(n),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s of a closed namespace: %v", name, err)
		}
	}
}

// A child process joins its own namespace to one that only it holds. When the
// kernel removes the one, the link's other end goes too.
func TestNamespacesDieWithTheProcess(t *testing.T) {
	outside := newNamespace(t)
	cmd := child(t, "lab")
	if err := outside.Do(func() error { startChild(t, cmd); return nil }); err != nil {
		t.Fatal(err)
	}
	links := func() []string {
		names, err := outside.Links()
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if !slices.Contains(links(), "witness") {
		t.Fatalf("the child made no link, there are %v", links())
	}
	kill(t, cmd)
	eventually(t, "the killed process's namespace is gone", func() bool { return !slices.Contains(links(), "witness") })
}

func connectAndHang() error {
	f, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	n, err := New()
	if err != nil {
		return err
	}
	if err := Connect(&Namespace{file: f}, "witness", nil, n, "inside", nil); err != nil {
		return err
	}
	lab, err := NewLab(LabOptions{})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	defer runtime.KeepAlive(lab)
	select {}
}

func TestNewNeedsRights(t *testing.T) {
	cmd := child(t, "new")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.Output()
	if err == nil || !strings.Contains(string(out), "needs CAP_SYS_ADMIN") {
		t.Errorf("new namespace as nobody: %v, %s", err, out)
	}
}

func tryNew() error {
	_, err := New()
	return err
}

func TestNewLeavesTheHostAlone(t *testing.T) {
	host := own(t)
	before, err := host.Links()
	if err != nil {
		t.Fatal(err)
	}
	newLab(t, LabOptions{NodePort: 30080})
	after, err := host.Links()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(before, after) {
		t.Errorf("links of the host were %v and are %v", before, after)
	}
}

func TestSysctl(t *testing.T) {
	const name = "net/netfilter/nf_conntrack_tcp_timeout_established"
	host, n := own(t), newNamespace(t)
	before := mustSysctl(t, host, name)
	if err := n.Sysctl(name, "7"); err != nil {
		t.Fatal(err)
	}
	if got := mustSysctl(t, n, name); got != "7" {
		t.Errorf("value is %s, want 7", got)
	}
	if got := mustSysctl(t, host, name); got != before {
		t.Errorf("value of the host is %s, was %s", got, before)
	}
	if err := host.Sysctl(name, before); !errors.Is(err, errHost) {
		t.Errorf("write to the host's own namespace: %v, want %v", err, errHost)
	}
	for _, bad := range []string{"kernel/hostname", "net/../kernel/hostname", "../sys/net/ipv4/../../kernel/hostname"} {
		if err := n.Sysctl(bad, "x"); err == nil || !strings.Contains(err.Error(), "no value of a network namespace") {
			t.Errorf("write to %s: %v", bad, err)
		}
	}
	if err := n.Sysctl("net/ipv4/no_such_value", "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("write to a name that is not there: %v", err)
	}
	// The machine's table is shared, and so the kernel makes its size read-only.
	if err := n.Sysctl("net/netfilter/nf_conntrack_max", mustSysctl(t, n, "net/netfilter/nf_conntrack_max")); err == nil {
		t.Error("the machine's nf_conntrack_max could be written from inside a namespace")
	}
}
