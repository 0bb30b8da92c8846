package main

import "github.com/spf13/cobra"

// addBuiltin adds cobra's own commands, completion and help. Unlike cobra's they
// refuse what they do not know. The root's output has to be set before.
func addBuiltin(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Args = cobra.ArbitraryArgs
			cmd.RunE = noShell
			for _, shell := range cmd.Commands() {
				shell.Args = noArgs
			}
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				topic, rest, err := root.Find(args)
				if err != nil {
					return usageError{err}
				}
				return noArgs(topic, rest)
			}
		}
	}
}

// noShell refuses whatever is not one of the shells, which are commands.
func noShell(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("name the shell: bash, zsh, fish or powershell")
	}
	return usagef("%q is no shell with completion: use bash, zsh, fish or powershell", args[0])
}
