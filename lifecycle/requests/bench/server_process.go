//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // the servers' own programs
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"text/template"
	"time"
)

var (
	//go:embed servers/app.js
	nodeApp []byte
	//go:embed servers/app.py
	gunicornApp []byte
	//go:embed servers/nginx.conf
	nginxConfig string
)

func startNode(ctx context.Context, h host) (stop func() error, err error) {
	program := filepath.Join(h.dir, "app.js")
	if err := os.WriteFile(program, nodeApp, 0o600); err != nil {
		return nil, err
	}
	type port struct {
		Port uint16 `json:"port"`
		H2   bool   `json:"h2"`
	}
	var ports []port
	for _, s := range h.spots {
		ports = append(ports, port{s.Port, s.H2})
	}
	config, err := json.Marshal(map[string]any{"ports": ports, "secure": h.secure, "cert": h.certificate, "key": h.key})
	if err != nil {
		return nil, err
	}
	return startProcess(ctx, h, noteLine, "node", program, string(config))
}

func startGunicorn(ctx context.Context, h host) (stop func() error, err error) {
	if err := os.WriteFile(filepath.Join(h.dir, "app.py"), gunicornApp, 0o600); err != nil {
		return nil, err
	}
	args := []string{
		"--worker-class", "gthread", "--threads", "256", "--worker-connections", "4096", "--keep-alive", "3600", "--timeout", "0",
		"--log-level", "critical", "--chdir", h.dir, "--worker-tmp-dir", h.dir,
	}
	for _, s := range h.spots {
		args = append(args, "--bind", fmt.Sprintf("0.0.0.0:%d", s.Port))
	}
	if h.secure {
		args = append(args, "--certfile", h.certificate, "--keyfile", h.key)
	}
	return startProcess(ctx, h, noteLine, "gunicorn", append(args, "app:app")...)
}

// largest is the size of the file that nginx serves parts of.
const largest = 64 << 20

func startNginx(ctx context.Context, h host) (stop func() error, err error) {
	f, err := os.Create(filepath.Join(h.dir, "file"))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(largest), f.Close()); err != nil {
		return nil, err
	}
	return startNginxWith(ctx, h, "")
}

// upstreamPort is that of the Go server behind nginx.
const upstreamPort = 9000

func startNginxBeforeGo(ctx context.Context, h host) (stop func() error, err error) {
	// One of them is with TLS and one without, and both may run.
	upstream := spot{Port: upstreamPort + uint16(one(h.secure))}
	stopGo, err := startGo(ctx, host{namespace: h.namespace, note: h.note, spots: []spot{upstream}})
	if err != nil {
		return nil, err
	}
	stopNginx, err := startNginxWith(ctx, h, fmt.Sprintf("127.0.0.1:%d", upstream.Port))
	if err != nil {
		return nil, errors.Join(err, stopGo())
	}
	return func() error { return errors.Join(stopNginx(), stopGo()) }, nil
}

func startNginxWith(ctx context.Context, h host, upstream string) (stop func() error, err error) {
	t, err := template.New("nginx.conf").Parse(nginxConfig)
	if err != nil {
		return nil, err
	}
	var config bytes.Buffer
	if err := t.Execute(&config, map[string]any{
		"Dir": h.dir, "Upstream": upstream, "Spots": h.spots, "Secure": h.secure, "Certificate": h.certificate, "Key": h.key,
	}); err != nil {
		return nil, err
	}
	path := filepath.Join(h.dir, "nginx.conf")
	if err := os.WriteFile(path, config.Bytes(), 0o600); err != nil {
		return nil, err
	}
	return startProcess(ctx, h, noteAccess, "nginx", "-c", path, "-p", h.dir, "-e", "stderr")
}

// startProcess starts a program in the host's namespace, and waits until it listens.
// stop kills it and all that it has started.
func startProcess(ctx context.Context, h host, read func(noter, string) error, name string, args ...string) (stop func() error, err error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("%w: run lifecycle/requests/bench/install.sh, or leave its servers out with --servers", err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir, "PYTHONDONTWRITEBYTECODE=1"}
	cmd.Stderr = os.Stderr
	// It is the first process of a namespace of its own, so that none outlives it. The
	// thread that starts it stays, because it dies with that.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	running, died := make(chan error, 1), make(chan struct{})
	var end error
	go func() {
		defer close(died)
		end = h.namespace.Do(func() error {
			if err := cmd.Start(); err != nil {
				running <- err
				return err
			}
			running <- nil
			return errors.Join(readNotes(out, h.note, read), killed(cmd.Wait()))
		})
	}()
	if err := <-running; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	stop = func() error {
		_ = cmd.Process.Kill() // if it has ended, its end says so
		<-died
		return end
	}
	if err := listening(ctx, h, died); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, errors.Join(err, stop()))
	}
	return stop, nil
}

// killed is what a process's end says beyond that it was killed.
func killed(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	return err
}

func readNotes(from io.Reader, note noter, read func(noter, string) error) error {
	lines := bufio.NewScanner(from)
	var first error
	for lines.Scan() {
		// It has to be read to its end, or the server stops at a full pipe.
		if err := read(note, lines.Text()); err != nil && first == nil {
			first = fmt.Errorf("read what a server noted, %q: %w", lines.Text(), err)
		}
	}
	return errors.Join(first, lines.Err())
}

// noteLine reads a moment's letter, the request's number and a time in nanoseconds.
func noteLine(note noter, line string) error {
	parts := strings.Fields(line)
	if len(parts) != 3 {
		return errors.New("three words are expected")
	}
	what, ok := map[string]moment{"b": began, "m": more, "l": last}[parts[0]]
	if !ok {
		return errors.New("unknown moment")
	}
	id, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return err
	}
	nanoseconds, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil {
		return err
	}
	at, err := monotonic(nanoseconds)
	if err == nil {
		note(id, what, at)
	}
	return err
}

// noteAccess reads nginx's log: the request's number, when it was over, in seconds
// of the day's clock, and how long it took.
func noteAccess(note noter, line string) error {
	parts := strings.Fields(line)
	if len(parts) == 0 || parts[0] == "-" {
		return nil // no request of ours
	}
	if len(parts) != 3 {
		return errors.New("three words are expected")
	}
	id, err := strconv.ParseUint(parts[0], 10, 64)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseFloat(parts[1], 64)
	if err != nil {
		return err
	}
	took, err := strconv.ParseFloat(parts[2], 64)
	if err != nil {
		return err
	}
	now := time.Now()
	ended := now.Add(time.Duration(seconds*float64(time.Second)) - time.Duration(now.UnixNano()))
	note(id, began, ended.Add(-time.Duration(took*float64(time.Second))))
	note(id, last, ended)
	return nil
}
