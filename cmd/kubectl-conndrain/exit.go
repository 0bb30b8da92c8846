package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// What the process says by its exit code.
const (
	codeDone      = 0
	codeError     = 1
	codeUsage     = 2
	codeCancelled = 130
)

// exitError ends a command that has said already what there was to say.
type exitError int

func (c exitError) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usageError is a command line that makes no sense.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// finish says once what went wrong and returns the exit code.
func finish(ctx context.Context, cmd *cobra.Command, err error, stderr io.Writer) int {
	if ctx.Err() != nil {
		return codeCancelled
	}
	if err == nil {
		return codeDone
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	// Joined errors are one line each; a person reads them as one sentence.
	fmt.Fprintf(stderr, "error: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintf(stderr, "'%s --help' says how it is used.\n", cmd.CommandPath())
		return codeUsage
	}
	return codeError
}

// noArgs refuses arguments. For a command with subcommands it takes them for a
// mistyped one and says what was meant.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !cmd.HasSubCommands():
		return usagef("unexpected argument %q", args[0])
	}
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return usagef("unknown command %q", args[0])
}
