package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/conndrain/conndrain/e2e/build"
)

// report is all that a run has found.
type report struct {
	Facts  string  `json:"facts"`
	Quick  bool    `json:"quick,omitempty"`
	Rows   []row   `json:"rows"`
	Tables []table `json:"tables,omitempty"`
}

func (r report) write(w io.Writer, output string) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	fmt.Fprintln(w, r.Facts)
	if r.Quick {
		fmt.Fprintln(w, "Small numbers (--quick): no figures to quote.")
	}
	writeRows(w, r.Rows)
	for _, t := range r.Tables {
		t.write(w)
	}
	return nil
}

// facts are about the machine, without which no figure means anything.
func facts() string {
	return fmt.Sprintf("Machine: %d CPUs (%s), load %s when it began; Linux %s, Kubernetes %s, containerd %s, %s.",
		runtime.NumCPU(), field("/proc/cpuinfo", "model name"), strings.Join(strings.Fields(firstLine("/proc/loadavg"))[:1], ""),
		firstLine("/proc/sys/kernel/osrelease"), build.KubernetesVersion, build.ContainerdVersion, runtime.Version())
}

// field is the value of a line "name : value" of a file.
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
