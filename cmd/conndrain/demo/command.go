package demo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// ExitError ends the process with a code of its own; all has been said already.
type ExitError int

// The codes other than 0, 1 and those of a child.
const (
	errExpired   ExitError = 3
	errCancelled ExitError = 130
)

func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// ExitCode returns the process's exit code.
func (e ExitError) ExitCode() int { return int(e) }

// The values of --output.
const (
	outputText = "text"
	outputJSON = "json"
)

// output is the flag --output.
type output string

func (o *output) String() string { return string(*o) }

func (o *output) Type() string { return outputText + "|" + outputJSON }

func (o *output) Set(s string) error {
	if !slices.Contains([]string{outputText, outputJSON}, s) {
		return fmt.Errorf("unknown output %q: use %s or %s", s, outputText, outputJSON)
	}
	*o = output(s)
	return nil
}

// options are the flags.
type options struct {
	seed   uint64
	output output
}

// Command returns the command. It ends when the demo is over, 15 to 20 seconds
// after its start, or at once when its context does; then the error is an ExitError
// with code 130.
func Command() *cobra.Command {
	o := options{seed: 1, output: outputText}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch a pod's sessions end, with real traffic in throw-away namespaces",
		Long: `Build a client, a node and a pod in network namespaces of this process, with a
Service address in front of the pod. Start slow downloads, "delete" the pod, wait for
its last session as 'conndrain wait' does, and compare: what would 'sleep 5' and
'sleep 30' have cut and wasted?

Takes 15 to 20 seconds. Root is not needed: other users get a user namespace. Nothing
of the machine changes, and nothing is left behind.

Exit codes: 0 done, 1 error, 2 usage, 3 a download was cut, 130 cancelled.`,
		Example: `  conndrain demo
  conndrain demo --seed 7 --output json`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return run(cmd, o) },
	}
	fs := cmd.Flags()
	fs.Uint64Var(&o.seed, "seed", o.seed, "other downloads: the lengths, and with them the table")
	fs.Var(&o.output, "output", "text, or json: all figures as one object on stdout, talk on stderr")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{outputText, outputJSON}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("seed", cobra.NoFileCompletions)
	return cmd
}

// arguments are what makes the same command of the same program again.
func (o options) arguments(cmd *cobra.Command) []string {
	path := strings.Fields(cmd.CommandPath())
	return append(path[1:], fmt.Sprintf("--seed=%d", o.seed), "--output="+string(o.output))
}
