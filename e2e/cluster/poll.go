package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const pollEvery = 100 * time.Millisecond

// poll calls try until it returns nil, and returns its last error after the timeout.
func poll(timeout time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return pollUntil(ctx, try)
}

// finalError marks an error that trying again cannot mend.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// pollUntil calls try until it returns nil or a finalError, or the context ends; it returns the last error of try.
func pollUntil(ctx context.Context, try func() error) error {
	start := time.Now()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := try()
		if err == nil || errors.As(err, new(finalError)) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (after %s)", err, time.Since(start).Round(time.Second))
		case <-tick.C:
		}
	}
}
