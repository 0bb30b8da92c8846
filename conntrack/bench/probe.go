//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// probeEvery is the time between two packets of a CPU.
const probeEvery = 500 * time.Microsecond

// probe sends packets on the CPUs named by its arguments, over the pairs of
// sockets that it inherited, until its standard input ends. Then it prints by how
// many nanoseconds the latest packet came later than it was due.
func probe() error {
	// Each probe keeps a processor of the runtime for itself.
	runtime.GOMAXPROCS(len(os.Args) + 2)
	var stop atomic.Bool
	ready := make(chan error, len(os.Args))
	latest := make(chan time.Duration, len(os.Args))
	for i, arg := range os.Args[1:] {
		cpu, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		far, near := 3+2*i, 4+2*i
		go func() { latest <- probeCPU(cpu, near, far, &stop, ready) }()
	}
	for range os.Args[1:] {
		if err := <-ready; err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop.Store(true)
	var worst time.Duration
	for range os.Args[1:] {
		worst = max(worst, <-latest)
	}
	fmt.Println(worst.Nanoseconds())
	return nil
}

// probeCPU is one probe. From the first packet on it allocates nothing and makes
// no system call that the runtime knows of, so that only the kernel can hold it.
func probeCPU(cpu, near, far int, stop *atomic.Bool, ready chan<- error) time.Duration {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	priority := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}
	err := errors.Join(
		unix.SchedSetaffinity(0, &set),
		unix.SchedSetAttr(0, priority, 0),
		unix.SetNonblock(near, false),
		unix.SetNonblock(far, false),
	)
	if err != nil {
		ready <- fmt.Errorf("%w: real-time priority needs root", err)
		return 0
	}
	ready <- nil
	var latest int64
	due := monotonic()
	for packet := [1]byte{}; !stop.Load(); {
		due = max(due+int64(probeEvery), monotonic())
		at := unix.NsecToTimespec(due)
		call(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&at)))
		if stop.Load() {
			break
		}
		call(unix.SYS_WRITE, uintptr(near), uintptr(unsafe.Pointer(&packet)), 1)
		call(unix.SYS_READ, uintptr(far), uintptr(unsafe.Pointer(&packet)), 1)
		latest = max(latest, monotonic()-due)
	}
	return time.Duration(latest)
}

func call(number, a, b, c uintptr) {
	_, _, _ = syscall.RawSyscall6(number, a, b, c, 0, 0, 0)
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}
