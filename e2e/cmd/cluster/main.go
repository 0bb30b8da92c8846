// Command cluster is the test cluster by hand: it starts one that stays, stops it, and does to its nodes what tests do.
// The make targets cluster-up and cluster-down call it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/conndrain/conndrain/e2e/build"
	"github.com/conndrain/conndrain/e2e/cluster"
)

const usage = `usage: cluster build                  build what is missing in the cache
       cluster up [flags]            start a cluster that stays; prints two lines for your shell
       cluster load [-name NAME] ARCHIVE...
                                     give images to every node
       cluster down [-name NAME]     stop it
       cluster clean                 remove what killed runs left
       cluster node [-name NAME] NODE reboot|poweroff|poweron|crash|pause|resume|cut|join
Flags of up: -name, -nodes, -proxy-mode, -ip-families, -shutdown-grace-period, -foreground: see cluster up -help
`

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	verbs := map[string]func(context.Context, []string) error{
		"build": buildAll, "up": up, "load": load, "down": down, "clean": clean, "node": node,
	}
	verb, ok := verbs[os.Args[1]]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	switch err := verb(ctx, os.Args[2:]); {
	case errors.Is(err, flag.ErrHelp):
		return 2
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	return 0
}

// until says how long a cluster lives, in the foreground or not.
var until = map[bool]string{false: " and stays until make cluster-down", true: " until this process is interrupted"}

// flags has the one that every verb shares.
func flags(verb string) (*flag.FlagSet, *string) {
	fs := flag.NewFlagSet("cluster "+verb, flag.ContinueOnError)
	return fs, fs.String("name", "hand", "name of the cluster")
}

func buildAll(ctx context.Context, _ []string) error {
	_, err := build.Prepare(ctx, os.Stderr)
	return err
}

func up(ctx context.Context, args []string) error {
	o := cluster.Options{Progress: os.Stderr}
	fs, name := flags("up")
	fs.IntVar(&o.Nodes, "nodes", 2, "number of nodes")
	fs.StringVar(&o.ProxyMode, "proxy-mode", "nftables", "of kube-proxy: nftables or iptables")
	families := fs.String("ip-families", string(cluster.IPv4), "IPv4, IPv6 or DualStack")
	fs.DurationVar(&o.ShutdownGracePeriod, "shutdown-grace-period", 0, "the kubelet's; 0 turns graceful node shutdown off")
	foreground := fs.Bool("foreground", false, "run until this process is interrupted, and stop the cluster then")
	if err := fs.Parse(args); err != nil {
		return err
	}
	o.Name, o.Families, o.Stay = *name, cluster.Families(*families), !*foreground
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, `
The cluster is up%s. With the two export lines that this prints in your shell (eval takes them over), try:
  kubectl get nodes -o wide
  node n1 systemctl status kubelet
  node n1 conntrack -L
  (cd e2e && go run ./cmd/cluster node n2 reboot) && kubectl get nodes --watch
Its state and the logs of every component are in %s.

`, until[*foreground], strings.TrimSuffix(c.Bin(), "/bin"))
	fmt.Printf("export PATH=%s:$PATH\nexport KUBECONFIG=%s\n", c.Bin(), c.Kubeconfig())
	if !*foreground {
		return nil
	}
	<-ctx.Done()
	return c.Stop()
}

func load(ctx context.Context, args []string) error {
	fs, name := flags("load")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() == 0 {
		return errors.New("name the archives: cluster load bin/images/prestop-amd64.tar")
	}
	c, err := cluster.Open(*name)
	if err != nil {
		return err
	}
	for _, archive := range fs.Args() {
		if err := c.LoadImage(ctx, archive); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s is on every node of cluster %s\n", archive, *name)
	}
	return nil
}

func down(_ context.Context, args []string) error {
	fs, name := flags("down")
	if err := fs.Parse(args); err != nil {
		return err
	}
	return cluster.Remove(*name)
}

func clean(context.Context, []string) error { return cluster.Clean() }

func node(ctx context.Context, args []string) error {
	fs, name := flags("node")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() != 2 {
		return errors.New("name a node and what to do to it: cluster node n1 reboot")
	}
	c, err := cluster.Open(*name)
	if err != nil {
		return err
	}
	n, err := c.Node(fs.Arg(0))
	if err != nil {
		return err
	}
	verbs := map[string]func() error{
		"reboot":   func() error { return n.Reboot(ctx) },
		"poweroff": func() error { return n.PowerOff(ctx) },
		"poweron":  func() error { return n.PowerOn(ctx) },
		"crash":    func() error { return n.Crash(ctx) },
		"pause":    func() error { return n.Pause(ctx) },
		"resume":   n.Resume,
		"cut":      n.CutNetwork,
		"join":     n.JoinNetwork,
	}
	verb, ok := verbs[fs.Arg(1)]
	if !ok {
		return fmt.Errorf("%q is nothing that can be done to a node: see cluster without arguments", fs.Arg(1))
	}
	return verb()
}
