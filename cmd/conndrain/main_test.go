package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// TestMain makes this test binary a conndrain, too: tests that run whole
// processes find it in their PATH.
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"conndrain": main})
}

// leakChecked fails a run that leaves goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"usage": usage},
	})
}

// usage runs conndrain and checks that it refuses its arguments with this text,
// said once and on stderr.
func usage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: usage text [argument...]")
	}
	// In a bare script an exit code cannot be told from another one.
	var stdout, stderr strings.Builder
	code := execute(context.Background(), args[1:], &stdout, &stderr)
	switch {
	case code != codeUsage:
		ts.Fatalf("exit code %d, want %d; stderr: %s", code, codeUsage, &stderr)
	case stdout.Len() > 0:
		ts.Fatalf("stdout: %s", &stdout)
	case !strings.Contains(stderr.String(), args[0]) || strings.Count(stderr.String(), "\n") != 2:
		ts.Fatalf("want two lines with %q; stderr: %s", args[0], &stderr)
	}
}
