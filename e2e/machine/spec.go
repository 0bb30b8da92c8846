// Package machine runs one real systemd machine in systemd-nspawn: an init with logind and D-Bus that can be rebooted
// and powered off, on a Debian file tree shared with other machines, in network namespace and cgroups of its own.
//
// Run is the supervisor, a process per machine that outlives whoever started it and boots again after a reboot. The
// other functions are for everybody else: they find a running machine by its folder.
package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Spec is all that a supervisor knows about its machine.
type Spec struct {
	Name   string // of the nspawn container, unique on this host
	Host   string // host name that the machine sees
	Dir    string // folder of the machine: its changes to the file tree, its logs
	Rootfs string // file tree that the machine boots from; never written
	NetNS  string // file that a network namespace is bound to
	Cgroup string // name of the group below the caller's, in each hierarchy
	Binds  []Bind
}

// Bind shows a file or folder of the host inside of the machine.
type Bind struct {
	Source, Target string
	ReadOnly       bool
}

const specFile = "machine.json"

// Write makes the machine's folder and puts the spec into it, where Run and Open look for it.
func (s Spec) Write() error {
	for _, dir := range []string{s.Upper(), s.LogDir(), filepath.Join(s.Dir, "work"), s.root()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make folder of machine %s: %w", s.Name, err)
		}
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode machine %s: %w", s.Name, err)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, specFile), b, 0o644); err != nil {
		return fmt.Errorf("write machine %s: %w", s.Name, err)
	}
	return nil
}

// Open reads the spec of the machine whose folder is dir.
func Open(dir string) (Spec, error) {
	b, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return Spec{}, fmt.Errorf("read machine: %w", err)
	}
	var s Spec
	if err := json.Unmarshal(b, &s); err != nil {
		return Spec{}, fmt.Errorf("read machine of %s: %w", dir, err)
	}
	if s.Dir != dir || s.Cgroup == "" {
		return Spec{}, errors.New("read machine of " + dir + ": its folder was moved or is incomplete")
	}
	return s, nil
}

// Upper holds the machine's own files over the file tree; write there before it boots.
func (s Spec) Upper() string { return filepath.Join(s.Dir, "upper") }

// LogDir is /var/log/cluster of the machine.
func (s Spec) LogDir() string { return filepath.Join(s.Dir, "log") }

// ConsoleLog is what the machine prints while it boots and ends, and what nspawn says itself.
func (s Spec) ConsoleLog() string { return filepath.Join(s.LogDir(), "console.log") }

// Group is every cgroup that the machine has ever been started in.
func (s Spec) Group() Group {
	b, err := os.ReadFile(s.groupFile())
	if err != nil {
		return Group{} // never started
	}
	return Group{paths: strings.Fields(string(b))}
}

// recordGroup keeps the group's name before it is made, so that no killed run can leave one that nobody knows.
func (s Spec) recordGroup(g Group) error {
	known := s.Group().paths
	for _, path := range g.paths {
		if !slices.Contains(known, path) {
			known = append(known, path)
		}
	}
	if err := os.WriteFile(s.groupFile(), []byte(strings.Join(known, "\n")), 0o644); err != nil {
		return fmt.Errorf("record cgroup of machine %s: %w", s.Name, err)
	}
	return nil
}

func (s Spec) root() string      { return filepath.Join(s.Dir, "root") }
func (s Spec) pidFile() string   { return filepath.Join(s.Dir, "nspawn.pid") }
func (s Spec) groupFile() string { return filepath.Join(s.Dir, "cgroups") }
