//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// facts are about the machine, without which no figure means anything.
func facts() string {
	most, buckets, err := netlab.TableSize()
	table := fmt.Sprintf("nf_conntrack_max %d, %d buckets (outside of the rows with 1M)", most, buckets)
	if err != nil {
		table = err.Error()
	}
	conntrack, err := exec.Command("conntrack", "--version").Output()
	if err != nil {
		conntrack = []byte(err.Error())
	}
	return fmt.Sprintf("machine: %d CPUs, %s; Linux %s; %s\ntable: %s\nagainst: %s; ti-mo/conntrack Dump\n",
		runtime.NumCPU(), field("/proc/cpuinfo", "model name"), firstLine("/proc/sys/kernel/osrelease"), runtime.Version(),
		table, bytes.TrimSpace(conntrack))
}

// field is the value of a line "name : value".
func field(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}
