//go:build linux

package netlab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// guardEnv makes a program that calls GuardTable a guard.
const guardEnv = "CONNDRAIN_TABLE_GUARD"

// The guard's inherited files.
const (
	guardAlive  = 3 // ends when the holder does
	guardLock   = 4 // the locked file
	guardStatus = 5 // what the guard tells the holder
)

// guardReady and guardDone are the lines that it tells.
const (
	guardReady = "ready"
	guardDone  = "done"
)

// GuardTable must be the first call in main or TestMain of a program that uses
// RaiseTable. It repairs the size of the machine's table where a killed program
// left it changed. In a process that RaiseTable started as a guard it never
// returns. A repair that does not work is told on stderr.
func GuardTable() {
	if os.Getenv(guardEnv) != "" {
		os.Exit(guard())
	}
	guarded.Store(true)
	if err := hostTable.repair(); err != nil {
		fmt.Fprintf(os.Stderr, "repair what a killed program left of %s: %v\n", hostTable.lock, err)
	}
}

// guard waits for the end of the holder and puts the old values back.
func guard() int {
	// The holder may be interrupted by any of these, and the guard with it.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	status := os.NewFile(guardStatus, "status")
	if len(os.Args) != 4 {
		return 2
	}
	t := table{lock: os.Args[1], max: os.Args[2], buckets: os.Args[3]}
	fmt.Fprintln(status, guardReady)
	_, _ = io.Copy(io.Discard, os.NewFile(guardAlive, "alive"))
	if err := t.restore(os.NewFile(guardLock, t.lock)); err != nil {
		fmt.Fprintln(status, err)
		return 1
	}
	fmt.Fprintln(status, guardDone)
	return 0
}

// hold is a held table: the locked file and the guard.
type hold struct {
	table  table
	lock   *os.File
	alive  *os.File
	status *os.File
	lines  *bufio.Scanner
	guard  *exec.Cmd
}

// hold repairs what a killed holder left, writes the values of now into the
// locked file f and starts a guard over them. The file is the hold's from then.
func (t table) hold(f *os.File) (*hold, error) {
	if left, ok, err := remembered(f); err != nil {
		return nil, err
	} else if ok {
		if err := t.write(left); err != nil {
			return nil, fmt.Errorf("repair the table's size: %w", err)
		}
	}
	now, err := t.read()
	if err != nil {
		return nil, err
	}
	if err := remember(f, now); err != nil {
		return nil, fmt.Errorf("write %s: %w", t.lock, err)
	}
	h := &hold{table: t, lock: f}
	if err := h.start(); err != nil {
		return nil, fmt.Errorf("start the table's guard: %w", errors.Join(err, os.Remove(t.lock)))
	}
	return h, nil
}

// start runs the guard and waits until no signal can end it any more.
func (h *hold) start() error {
	aliveR, aliveW, err := os.Pipe()
	if err != nil {
		return err
	}
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, aliveR.Close(), aliveW.Close())
	}
	h.alive, h.status, h.lines = aliveW, statusR, bufio.NewScanner(statusR)

	h.guard = exec.Command("/proc/self/exe", h.table.lock, h.table.max, h.table.buckets)
	h.guard.Env = append(os.Environ(), guardEnv+"=1")
	h.guard.Dir = "/"
	h.guard.ExtraFiles = []*os.File{guardAlive - 3: aliveR, guardLock - 3: h.lock, guardStatus - 3: statusW}
	// A session of its own keeps the terminal's and the group's signals away.
	h.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = h.guard.Start()
	// The guard's ends must be its alone, or their closing would tell nothing.
	_, _ = aliveR.Close(), statusW.Close()
	if err != nil {
		return errors.Join(err, h.closePipes())
	}
	if !h.lines.Scan() || h.lines.Text() != guardReady {
		return errors.Join(errors.New("it ended at once"), h.closePipes(), h.guard.Wait())
	}
	return nil
}

// release ends the guard, which puts the old values back, and waits for it.
// Where the guard was killed, it does so itself.
func (h *hold) release() error {
	err := h.alive.Close()
	var said []string
	for h.lines.Scan() {
		said = append(said, h.lines.Text())
	}
	err = errors.Join(err, h.status.Close())
	waited := h.guard.Wait()
	switch {
	case waited == nil && len(said) == 1 && said[0] == guardDone:
	case len(said) > 0 && said[0] != guardDone:
		err = errors.Join(err, errors.New(strings.Join(said, " ")))
	default:
		err = errors.Join(err, h.table.restore(h.lock))
	}
	return errors.Join(err, h.lock.Close())
}

func (h *hold) closePipes() error { return errors.Join(h.alive.Close(), h.status.Close()) }
