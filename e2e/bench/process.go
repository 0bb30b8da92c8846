package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/conndrain/conndrain/e2e/cluster"
)

// process is one of a container, by its number on this machine.
type process int

// processes are those of a pod that run a program of the given name. The control groups of a pod have its UID in their
// names, and other clusters' pods have other UIDs.
func processes(uid types.UID, program string) ([]process, error) {
	mark := "pod" + strings.ReplaceAll(string(uid), "-", "_")
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		return nil, err
	}
	var all []process
	for _, link := range links {
		path, err := os.Readlink(link)
		if err != nil || filepath.Base(path) != program {
			continue // another, or gone
		}
		groups, err := os.ReadFile(filepath.Join(filepath.Dir(link), "cgroup"))
		if err != nil || !strings.Contains(string(groups), mark) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", program, err)
		}
		all = append(all, process(pid))
	}
	return all, nil
}

// oneProcess is the only one of a pod that runs the program.
func oneProcess(uid types.UID, program string) (process, error) {
	all, err := processes(uid, program)
	if err != nil {
		return 0, err
	}
	if len(all) != 1 {
		return 0, fmt.Errorf("pod %s has %d processes of %s, not one", uid, len(all), program)
	}
	return all[0], nil
}

func (p process) file(name string) string { return fmt.Sprintf("/proc/%d/%s", int(p), name) }

// network is the namespace that the process is in.
func (p process) network() cluster.Namespace { return cluster.NamespaceAt(p.file("ns/net")) }

// footprint is what a process has in memory.
type footprint struct{ now, peak int64 } // bytes

func (p process) memory() (footprint, error) {
	read := func(name string) (int64, error) {
		kib, err := strconv.ParseInt(strings.TrimSuffix(field(p.file("status"), name), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s of process %d: %w", name, int(p), err)
		}
		return kib << 10, nil
	}
	now, nowErr := read("VmRSS")
	peak, peakErr := read("VmHWM")
	return footprint{now, peak}, errors.Join(nowErr, peakErr)
}

// cpu is what the process has used so far, its threads that have ended included.
func (p process) cpu() (time.Duration, error) {
	const ticksPerSecond = 100 // of this file, on every Linux
	stat := firstLine(p.file("stat"))
	_, rest, ok := strings.Cut(stat, ") ") // the name before may hold anything
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0, fmt.Errorf("read CPU time of process %d: %q", int(p), stat)
	}
	user, userErr := strconv.ParseInt(fields[11], 10, 64)
	system, systemErr := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(userErr, systemErr); err != nil {
		return 0, fmt.Errorf("read CPU time of process %d: %w", int(p), err)
	}
	return time.Duration(user+system) * time.Second / ticksPerSecond, nil
}

// subscriptions counts the process's netlink sockets that hear of changes in connection tracking, and all that it has to
// netfilter.
func (p process) subscriptions() (subscribed, all int, err error) {
	own := map[string]bool{}
	descriptors, err := os.ReadDir(p.file("fd"))
	if err != nil {
		return 0, 0, fmt.Errorf("list files of process %d: %w", int(p), err)
	}
	for _, d := range descriptors {
		if target, err := os.Readlink(p.file("fd/" + d.Name())); err == nil {
			own[target] = true
		}
	}
	b, err := os.ReadFile(p.file("net/netlink"))
	if err != nil {
		return 0, 0, fmt.Errorf("list netlink sockets: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		// sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
		const netfilter = "12"
		f := strings.Fields(line)
		if len(f) < 10 || f[1] != netfilter || !own["socket:["+f[9]+"]"] {
			continue
		}
		all++
		groups, err := strconv.ParseUint(f[3], 16, 32)
		if err != nil {
			return 0, 0, fmt.Errorf("read groups of netlink socket: %w", err)
		}
		if groups != 0 {
			subscribed++
		}
	}
	return subscribed, all, nil
}
