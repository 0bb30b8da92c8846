// Command traffic is every server, client and proxy that tests put into pods and outside of them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/conndrain/conndrain/e2e/traffic"
)

const usage = `usage: traffic server [-on-term exit|shutdown|ignore] [-http 8080] [-grpc 9090] [-tcp 7000] [-udp 7001]
       traffic client -protocol NAME -address HOST:PORT [-bytes N] [-duration 10s] [-count N] ...
       traffic proxy [-port 15001]
       traffic redirect [-from 8080] [-to 15001]
A client prints its report as one line of JSON when its transfers are done; after SIGTERM it starts no further one.
`

var errUsage = errors.New("usage")

func main() { os.Exit(run()) }

func run() int {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	verbs := map[string]func([]string) error{"server": server, "client": client, "proxy": proxy, "redirect": redirect}
	verb, ok := verbs[os.Args[1]]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	switch err := verb(os.Args[2:]); {
	case errors.Is(err, errUsage):
		return 2
	case err != nil:
		fmt.Fprintln(os.Stderr, "traffic:", err)
		return 1
	}
	return 0
}

// parse prints what is wrong itself.
func parse(fs *flag.FlagSet, args []string) error {
	if fs.Parse(args) != nil {
		return errUsage
	}
	return nil
}

func server(args []string) error {
	fs := flag.NewFlagSet("traffic server", flag.ContinueOnError)
	ports := traffic.DefaultPorts
	onTerm := fs.String("on-term", "exit", "at SIGTERM: exit at once, shutdown gracefully, or ignore it")
	fs.IntVar(&ports.HTTP, "http", ports.HTTP, "port of HTTP/1.1, HTTP/2 and WebSocket; /ready answers probes")
	fs.IntVar(&ports.GRPC, "grpc", ports.GRPC, "port of gRPC")
	fs.IntVar(&ports.TCP, "tcp", ports.TCP, "port of plain TCP")
	fs.IntVar(&ports.UDP, "udp", ports.UDP, "port of UDP")
	if err := parse(fs, args); err != nil {
		return err
	}
	terminated := make(chan os.Signal, 1)
	switch *onTerm {
	case "exit", "shutdown":
		signal.Notify(terminated, syscall.SIGTERM)
	case "ignore":
		signal.Ignore(syscall.SIGTERM)
	default:
		fmt.Fprintf(os.Stderr, "-on-term %q: use exit, shutdown or ignore\n", *onTerm)
		return errUsage
	}
	s, err := traffic.Listen(ports)
	if err != nil {
		return err
	}
	say("serving %+v, at SIGTERM: %s", s.Ports, *onTerm)
	<-terminated
	last := traffic.Termination{At: time.Now(), Served: s.Served()}
	say("SIGTERM")
	if err := last.Write(); err != nil {
		return err
	}
	if *onTerm == "exit" {
		return nil // with every connection
	}
	err = s.Shutdown(context.Background())
	say("shut down")
	return err
}

func client(args []string) error {
	fs := flag.NewFlagSet("traffic client", flag.ContinueOnError)
	c := traffic.Client{Protocol: "http", Count: 1, Transfer: traffic.Transfer{Bytes: 1 << 20}}
	c.Defaults()
	c.Flags(fs)
	if err := parse(fs, args); err != nil {
		return err
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	report, err := c.Run(context.Background(), stop.Done())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

func proxy(args []string) error {
	fs := flag.NewFlagSet("traffic proxy", flag.ContinueOnError)
	port := fs.Int("port", traffic.ProxyPort, "port that others are redirected to")
	if err := parse(fs, args); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	say("proxying on port %d", *port)
	return traffic.Proxy(ctx, *port, func(client net.Addr, meant netip.AddrPort) {
		say("connection of %s to %s", client, meant)
	})
}

func redirect(args []string) error {
	fs := flag.NewFlagSet("traffic redirect", flag.ContinueOnError)
	from := fs.Int("from", traffic.DefaultPorts.HTTP, "port that clients connect to")
	to := fs.Int("to", traffic.ProxyPort, "port of the proxy")
	if err := parse(fs, args); err != nil {
		return err
	}
	return traffic.Redirect(*from, *to)
}

func say(format string, args ...any) {
	fmt.Printf("%s %s\n", time.Now().UTC().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}
