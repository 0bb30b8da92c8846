//go:build !linux

package sockdiag

import (
	"context"
	"errors"
)

func dump(context.Context, bool, func(answer)) error { return errors.ErrUnsupported }

func retriable(err error) bool { return errors.Is(err, errInterrupted) }

func isBarred(err error) bool { return errors.Is(err, errors.ErrUnsupported) }
