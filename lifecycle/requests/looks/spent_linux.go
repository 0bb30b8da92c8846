package looks

import (
	"time"

	"golang.org/x/sys/unix"
)

// processTime is what this process has spent of a CPU, its garbage collector included.
func processTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return time.Duration(time.Now().UnixNano()) // the time that it takes is not less
	}
	return time.Duration(t.Nano())
}
