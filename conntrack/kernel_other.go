//go:build !linux

package conntrack

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/net/bpf"
)

// noKernel stands in on systems that have no conntrack.
type noKernel struct{}

func newKernel(int) kernel { return noKernel{} }

var errSystem = fmt.Errorf("connection tracking: %w", errors.ErrUnsupported)

func (noKernel) listen([]bpf.RawInstruction) (listener, error) { return nil, errSystem }
func (noKernel) dump(context.Context, selection, func(message) error) error {
	return errSystem
}
func (noKernel) asker() (asker, error)             { return nil, errSystem }
func (noKernel) size() (tableSize, error)          { return tableSize{}, errSystem }
func (noKernel) reachable() error                  { return errSystem }
func (noKernel) limits() (limits, error)           { return limits{}, errSystem }
func (noKernel) probe(context.Context, bool) error { return errSystem }
