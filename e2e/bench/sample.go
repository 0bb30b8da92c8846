package main

import (
	"fmt"
	"slices"
	"time"
)

// sample is what one thing took, several times.
type sample []time.Duration

func (s sample) median() time.Duration { return s.percentile(50) }
func (s sample) worst() time.Duration  { return s.percentile(100) }

// percentile by the nearest rank, which is a value that was seen; 0 of an empty sample.
func (s sample) percentile(p int) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := (p*len(sorted) + 99) / 100
	return sorted[max(rank, 1)-1]
}

// span prints a time with three digits.
func span(d time.Duration) string {
	switch {
	case d.Abs() >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d.Abs() >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d.Abs() >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
}

// megabytes prints bytes.
func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
