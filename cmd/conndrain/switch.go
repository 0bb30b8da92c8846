package main

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// switchValue is a flag that is on by being there. Unlike pflag's own it shows
// in the help as --name and not as --name[=true|false].
type switchValue bool

func (v *switchValue) Set(s string) error {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("it is true by being there, or use true or false")
	}
	*v = switchValue(on)
	return nil
}

func (v *switchValue) String() string { return strconv.FormatBool(bool(*v)) }

// Type is the one that cobra reads --help and --version by.
func (v *switchValue) Type() string { return "bool" }

func switchVar(fs *pflag.FlagSet, on *bool, name, letter, usage string) *pflag.Flag {
	flag := fs.VarPF((*switchValue)(on), name, letter, usage)
	flag.NoOptDefVal = "true"
	return flag
}

// addHelp defines --help for a command and all below it, and --version where
// there is one, as cobra would, but as switches.
func addHelp(cmd *cobra.Command) {
	own := func(name, letter string) {
		flag := switchVar(cmd.Flags(), new(bool), name, letter, name+" for "+cmd.Name())
		flag.Annotations = map[string][]string{cobra.FlagSetByCobraAnnotation: {"true"}}
	}
	own("help", "h")
	if cmd.Version != "" {
		own("version", "v")
	}
	for _, c := range cmd.Commands() {
		addHelp(c)
	}
}
