//go:build !linux

package sockdiag

import (
	"context"
	"errors"
)

func dump(context.Context, uint8, func(Socket)) error { return errors.ErrUnsupported }

func retriable(err error) bool { return errors.Is(err, errInterrupted) }
