package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// It runs beside every container, so it takes little memory: here as a sidecar that
// has held a hook without a helper.
func TestMemory(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close() // another one may take it, which the test then says
	cmd := exec.Command(build(t), "sidecar", "--listen", address, "--node", "127.0.0.1:1", "--grace", "3s")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	if !lines.Scan() || !strings.Contains(lines.Text(), "serving hooks") {
		t.Fatalf("it says %q", lines.Text())
	}
	resp, err := http.Get("http://" + address + "/drain")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var peak int
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if _, err := fmt.Sscan(text, &peak); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d kB", peak)
	const most = 10 << 10
	if peak == 0 || peak > most {
		t.Errorf("%d kB in memory, at most %d", peak, most)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stderr)
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
