//go:build !linux

package conntrack

import "time"

// threadTime is unknown here, where no sweep runs anyway.
func threadTime() time.Duration { return 0 }
