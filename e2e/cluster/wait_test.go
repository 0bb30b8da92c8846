package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLastLinesShowWhy(t *testing.T) {
	lines := func(prefix string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%s %d\n", prefix, i)
		}
		return b.String()
	}
	for _, test := range []struct{ name, log, first, last string }{
		{"short", "one\ntwo\n", "one", "two"},
		{"long", lines("line", 100), "line 85", "line 99"},
		{"panic", lines("line", 100) + "panic: why\n" + lines("frame", 40), "panic: why", "frame 13"},
		{"panic of long ago", "panic: recovered\n" + lines("line", 1000), "line 985", "line 999"},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "log")
			if err := os.WriteFile(name, []byte(test.log), 0o644); err != nil {
				t.Fatal(err)
			}
			got := strings.Split(lastLines(name), "\n")
			if first, last := got[0], got[len(got)-1]; first != test.first || last != test.last {
				t.Errorf("lines are %q to %q, want %q to %q", first, last, test.first, test.last)
			}
		})
	}
}
