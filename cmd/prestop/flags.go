package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/hook"
)

const usage = `prestop waits, as a preStop hook, until the last session of its pod has ended.

  lifecycle: {preStop: {exec: {command: [/prestop]}}}

Flags, each with an environment variable of the same meaning:

  --node HOST             CONNDRAIN_NODE, HOST_IP   the node's helper
                          (default ` + hook.ServiceHost + `)
  --grace 30s             CONNDRAIN_GRACE           the pod's grace period, for when no
                                                    helper tells
  --fallback-sleep 15s    CONNDRAIN_FALLBACK_SLEEP  the least wait while no helper answers

In a container it exits 0 whatever happened, and a flag that makes no sense is
said and left out. Elsewhere that is exit 2.
`

// errHelp is returned when only the usage was asked for.
var errHelp = flag.ErrHelp

// parse reads flags and environment; flags win. What is wrong is an error, joined
// where there is more than one thing, and the rest of the Config stands.
func parse(args []string, getenv func(string) string, stderr io.Writer) (hook.Config, error) {
	c := hook.Config{Grace: lifecycle.DefaultGrace, FallbackSleep: lifecycle.DefaultFallbackSleep}
	var errs []error
	for _, name := range []string{"HOST_IP", "CONNDRAIN_NODE"} {
		if v := getenv(name); v != "" {
			errs = append(errs, setNode(&c, v, name))
		}
	}
	for name, into := range map[string]*time.Duration{
		"CONNDRAIN_GRACE": &c.Grace, "CONNDRAIN_FALLBACK_SLEEP": &c.FallbackSleep,
	} {
		if v := getenv(name); v != "" {
			errs = append(errs, setDuration(into, v, name))
		}
	}
	flags := flag.NewFlagSet("prestop", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.Func("node", "", func(v string) error { return setNode(&c, v, "--node") })
	flags.Func("grace", "", func(v string) error { return setDuration(&c.Grace, v, "--grace") })
	flags.Func("fallback-sleep", "", func(v string) error {
		return setDuration(&c.FallbackSleep, v, "--fallback-sleep")
	})
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = io.WriteString(stderr, usage) // there is nobody else to tell
		return c, errHelp
	}
	errs = append(errs, err)
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unknown argument %q: prestop takes flags only", flags.Arg(0)))
	}
	return c, errors.Join(errs...)
}

func setNode(c *hook.Config, v, name string) error {
	changed := *c
	changed.Node = v
	if err := changed.Validate(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*c = changed
	return nil
}

func setDuration(into *time.Duration, v, name string) error {
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return fmt.Errorf("%s %q: use a time such as 30s", name, v)
	}
	*into = d
	return nil
}
