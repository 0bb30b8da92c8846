package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/hook"
)

const usage = `prestop waits, as a preStop hook, until the last session of its pod has ended, or no
request is in flight any more, as the pod's annotation conndrain.io/until says.

  prestop [flags]           in the container:
                            lifecycle: {preStop: {exec: {command: [/prestop]}}}
  prestop sidecar [flags]   as a native sidecar, for containers that have no file to
                            execute: lifecycle: {preStop: {httpGet: {path: ` + hook.DrainPath + `,
                            port: 10942}}}; ` + hook.HealthPath + ` answers probes
  prestop copy DIR          puts the program into a folder, for another container to
                            run

Each flag has an environment variable of the same meaning, and wins over it:

  --node HOST             CONNDRAIN_NODE, HOST_IP   the node's helper, with or without
                          a port (default ` + hook.ServiceHost + `)
  --grace 30s             CONNDRAIN_GRACE           the pod's grace period, for when no
                                                    helper tells
  --fallback-sleep 15s    CONNDRAIN_FALLBACK_SLEEP  the least wait while no helper answers
  --port 8080,9090        CONNDRAIN_PORT            the pod's ports that count while no
                                                    helper answers (default: every one;
                                                    with hostNetwork none)
  --token-file FILE       CONNDRAIN_TOKEN_FILE      a token that proves which pod asks,
                                                    for hostNetwork
  --listen :10942         CONNDRAIN_LISTEN          where the sidecar takes hooks
  --learn=false           CONNDRAIN_LEARN           the sidecar does not look at the
                                                    pod's connections before a drain,
                                                    which costs up to 1 % of a core;
                                                    without it, it has to learn during
                                                    the drain what a request is there
  --help, --version

While no helper answers, prestop goes by the pod's own sockets: for at least
fallback-sleep, and at most until the helper's last word on the deadline, or grace
less a reserve of a fifth (10s at the most).

Exit: 0 done; 1 the sidecar cannot serve, or the program could not be copied; 2
usage, also of copy without its one folder. In Kubernetes (when KUBERNETES_SERVICE_HOST is set) a hook exits 0 whatever
happened, and a flag or variable that makes no sense is said and left out.
`

// What was asked for instead of a wait.
var (
	errHelp    = flag.ErrHelp
	errVersion = errors.New("only the version was asked for")
)

// defaultListen is where a sidecar takes hooks.
var defaultListen = ":" + strconv.Itoa(lifecycle.SidecarPort)

// command is what a command line and an environment say.
type command struct {
	hook.Config
	sidecar bool
	listen  string
}

// parse reads flags and environment; flags win. What is wrong is an error, joined
// where there is more than one thing, and the rest of the command stands.
func parse(args []string, getenv func(string) string) (command, error) {
	c := command{listen: defaultListen}
	c.Grace, c.FallbackSleep = lifecycle.DefaultGrace, lifecycle.DefaultFallbackSleep
	if len(args) > 0 && args[0] == "sidecar" {
		c.sidecar, args = true, args[1:]
	}
	flags := flag.NewFlagSet("prestop", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	var errs []error
	set := func(name, v string, set func(string) error) {
		if err := set(v); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	for _, o := range c.options() {
		if v := getenv(o.env); v != "" {
			set(o.env, v, o.set)
		}
		define := flags.Func
		if o.isSwitch {
			define = flags.BoolFunc // which may stand alone
		}
		define(o.flag, "", func(v string) error {
			set("--"+o.flag, v, o.set)
			return nil
		})
	}
	if c.HostIP = getenv("HOST_IP"); c.HostIP != "" && c.Node == "" {
		set("HOST_IP", c.HostIP, c.setNode)
	}
	version := flags.Bool("version", false, "")
	for {
		err := flags.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			return c, errHelp
		}
		// What comes after something that makes no sense counts all the same.
		args = flags.Args()
		switch {
		case err != nil:
			errs = append(errs, err)
			continue
		case len(args) > 0:
			errs = append(errs, unknownArgument(args[0]))
			args = args[1:]
			continue
		}
		break
	}
	if *version {
		return c, errVersion
	}
	return c, errors.Join(errs...)
}

func unknownArgument(a string) error {
	if _, err := strconv.ParseBool(a); err == nil {
		return fmt.Errorf("unknown argument %q: write --learn=%s, with no space", a, a)
	}
	return fmt.Errorf("unknown argument %q: there is only 'prestop', 'prestop sidecar' and 'prestop copy DIR', and flags", a)
}

// option is one flag and the variable of the same meaning.
type option struct {
	flag string
	env  string
	set  func(string) error
	// isSwitch says that it is true by being there.
	isSwitch bool
}

func (c *command) options() []option {
	return []option{
		{flag: "node", env: "CONNDRAIN_NODE", set: c.setNode},
		{flag: "grace", env: "CONNDRAIN_GRACE", set: duration(&c.Grace)},
		{flag: "fallback-sleep", env: "CONNDRAIN_FALLBACK_SLEEP", set: duration(&c.FallbackSleep)},
		{flag: "port", env: "CONNDRAIN_PORT", set: c.setPorts},
		{flag: "token-file", env: "CONNDRAIN_TOKEN_FILE", set: func(v string) error { c.TokenFile = v; return nil }},
		{flag: "listen", env: "CONNDRAIN_LISTEN", set: c.setListen},
		{flag: "learn", env: "CONNDRAIN_LEARN", set: c.setLearn, isSwitch: true},
	}
}

func (c *command) setNode(v string) error {
	if err := (hook.Config{Node: v}).Validate(); err != nil {
		return err
	}
	c.Node = v
	return nil
}

func (c *command) setPorts(v string) error {
	var ports []uint16
	for text := range strings.SplitSeq(v, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("%q: use numbers from 1 to 65535 with commas between", v)
		}
		ports = append(ports, uint16(n))
	}
	c.Ports = ports
	return nil
}

func (c *command) setListen(v string) error {
	_, port, err := net.SplitHostPort(v)
	if n, numberErr := strconv.ParseUint(port, 10, 16); err != nil || numberErr != nil || n == 0 {
		return fmt.Errorf("%q: use an address and a port such as %s", v, defaultListen)
	}
	c.listen = v
	return nil
}

func (c *command) setLearn(v string) error {
	learn, err := strconv.ParseBool(v)
	if err != nil {
		return fmt.Errorf("%q: use true or false", v)
	}
	c.NoLearning = !learn
	return nil
}

func duration(into *time.Duration) func(string) error {
	return func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q: use a time such as 30s", v)
		}
		*into = d
		return nil
	}
}
