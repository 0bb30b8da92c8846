package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// patience is how long a test waits for what has to happen: long, because it
// only runs out where something is wrong.
const patience = 60 * time.Second

// process is a running conndrain.
type process struct {
	cmd    *exec.Cmd
	stdout output
	stderr output
	ended  chan struct{}
}

// start runs conndrain inside of a namespace. adapt may change how it is
// started; it runs on the thread that starts it.
func start(t *testing.T, n *netlab.Namespace, adapt func(*exec.Cmd) error, args ...string) *process {
	t.Helper()
	p := &process{ended: make(chan struct{})}
	err := n.Do(func() error {
		p.cmd = exec.Command("conndrain", args...)
		p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
		if adapt != nil {
			if err := adapt(p.cmd); err != nil {
				return err
			}
		}
		defer func() {
			for _, f := range p.cmd.ExtraFiles {
				_ = f.Close() // the child has its own
			}
		}()
		return p.cmd.Start()
	})
	if err != nil {
		t.Fatalf("start conndrain %s: %v", strings.Join(args, " "), err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // its exit code is asked for
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("conndrain %s\nstdout: %s\nstderr: %s", strings.Join(args, " "), &p.stdout, &p.stderr)
		}
	})
	return p
}

// exit waits for the end and checks the exit code.
func (p *process) exit(t *testing.T, want int) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("still running after %s", patience)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		t.Errorf("exit code %d, want %d", got, want)
	}
}

// lives checks that it has not ended yet.
func (p *process) lives(t *testing.T) {
	t.Helper()
	select {
	case <-p.ended:
		t.Fatal("ended too early")
	default:
	}
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// outcome is the object that wait ends with.
type outcome struct {
	Reason, Source   string
	WaitedSeconds    float64
	Open, Idle, Lost *int
	Cut, Peak, New   *int
}

// is says whether a figure is known and this one.
func is(figure *int, want int) bool { return figure != nil && *figure == want }

// outcome reads the last line of stdout.
func (p *process) outcome(t *testing.T) outcome {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(p.stdout.String(), "\n"), "\n")
	d := json.NewDecoder(strings.NewReader(lines[len(lines)-1]))
	d.DisallowUnknownFields()
	var o outcome
	if err := d.Decode(&o); err != nil {
		t.Fatalf("last line of stdout %q: %v", lines[len(lines)-1], err)
	}
	t.Logf("ended with %s", lines[len(lines)-1])
	return o
}

// waitFor polls until the condition holds.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !condition() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				t.Fatalf("waited for %s: %s", patience, what)
			}
			t.FailNow()
		}
	}
}

// output is what a process has written so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func (o *output) has(text string) bool { return strings.Contains(o.String(), text) }

// asNobody starts a process without any right. The binary is passed as a file,
// because its folder is not for everybody.
func asNobody(cmd *exec.Cmd) error {
	f, err := os.Open(cmd.Path)
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{f}
	cmd.Path = "/proc/self/fd/3"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return nil
}
