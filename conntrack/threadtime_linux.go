package conntrack

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is how much of a CPU the calling thread has used.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0 // cannot happen on Linux; then the least pause is kept
	}
	return time.Duration(ts.Nano())
}
