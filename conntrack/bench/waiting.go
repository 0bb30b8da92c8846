//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// waiting is a `conndrain wait` that runs.
type waiting struct {
	pid    int
	inStep chan struct{}
	done   chan struct{}
	// All below is set when done is closed.
	ended  time.Time
	code   int
	result result
	err    error
}

// result is what the process says at the end.
type result struct {
	Reason         string
	Open, Lost     int
	Cut, Peak, New int
}

// startWait starts one inside of n and returns once it knows how many sessions
// there are. The process dies with this one.
func (b *bench) startWait(ctx context.Context, n *netlab.Namespace, args ...string) (*waiting, error) {
	args = append([]string{b.conndrain, "wait", "--output", "json"}, args...)
	w := &waiting{inStep: make(chan struct{}), done: make(chan struct{})}
	started := make(chan struct{})
	go func() {
		defer close(w.done)
		w.err = n.Do(func() error {
			cmd, _ := command(ctx, nil, args)
			var stdout bytes.Buffer
			stderr := &progress{known: w.inStep}
			cmd.Stdout, cmd.Stderr = &stdout, stderr
			if err := cmd.Start(); err != nil {
				return err
			}
			w.pid = cmd.Process.Pid
			close(started)
			err := cmd.Wait()
			w.ended = time.Now()
			w.code = cmd.ProcessState.ExitCode()
			if err := explain(err, args, &stderr.text); err != nil {
				return err
			}
			if err := json.Unmarshal(stdout.Bytes(), &w.result); err != nil {
				return fmt.Errorf("result of wait: %w: %s", err, stderr.text.Bytes())
			}
			return nil
		})
	}()
	select {
	case <-started:
	case <-w.done:
		return nil, w.failed("at its start")
	}
	select {
	case <-w.inStep:
		return w, nil
	case <-w.done:
		return nil, w.failed("before it knew the sessions")
	}
}

// failed is the error of a wait that is over where it should not be.
func (w *waiting) failed(when string) error {
	if w.err != nil {
		return w.err
	}
	return fmt.Errorf("wait ended %s: %s, exit %d", when, w.result.Reason, w.code)
}

// running returns an error if the process has ended.
func (w *waiting) running() error {
	select {
	case <-w.done:
		return w.failed("while sessions were open")
	default:
		return nil
	}
}

// drained waits for the end and checks that it is the right one.
func (w *waiting) drained() error {
	<-w.done
	if w.err != nil {
		return w.err
	}
	if w.code != 0 || w.result.Reason != "Drained" {
		return w.failed("wrongly")
	}
	return nil
}

// progress reads the talk of a wait.
type progress struct {
	mu    sync.Mutex
	text  bytes.Buffer
	known chan struct{}
}

// Write closes known at the first line that tells counts.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := bytes.Contains(p.text.Bytes(), []byte(" open="))
	p.text.Write(b)
	if !before && bytes.Contains(p.text.Bytes(), []byte(" open=")) {
		close(p.known)
	}
	return len(b), nil
}
