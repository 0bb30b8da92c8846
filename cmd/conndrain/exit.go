package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/conndrain/conndrain/cmd/conndrain/demo"
)

// What the process says by its exit code.
const (
	codeDone      = 0
	codeError     = 1
	codeUsage     = 2
	codeExpired   = 3
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
func finish(cmd *cobra.Command, err error, stderr io.Writer) int {
	if err == nil {
		return codeDone
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	if code, ok := errors.AsType[demo.ExitError](err); ok {
		return code.ExitCode()
	}
	// Joined errors are one line each; a person reads them as one sentence.
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), text)
	if hint := hint(err); hint != "" {
		fmt.Fprintln(stderr, hint)
	}
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintf(stderr, "'%s --help' says how it is used.\n", cmd.CommandPath())
		return codeUsage
	}
	return codeError
}

// flagError makes a usage error of a flag that could not be read.
func flagError(_ *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usagef("--%s: %w", e.GetFlag().Name, e.Unwrap())
	}
	return usageError{err}
}

// noArgs refuses arguments. For a command with subcommands it takes them for a
// mistyped one and says what was meant.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !cmd.HasSubCommands():
		return usagef("unexpected argument %q: everything is set by flags", args[0])
	}
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return usagef("unknown command %q", args[0])
}
