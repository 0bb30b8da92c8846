//go:build !linux

package demo

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

func run(*cobra.Command, options) error {
	return fmt.Errorf("the demo needs Linux network namespaces: %w", errors.ErrUnsupported)
}
