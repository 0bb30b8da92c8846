package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/conndrain/conndrain/lifecycle"
)

// rowPeers is how many sessions a row names.
const rowPeers = 2

// writeTable writes a row for each drain.
func writeTable(w io.Writer, r report) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NODE\tNAMESPACE\tPOD\tPHASE\tHELD\tLEFT\tOPEN\tBETWEEN\tIDLE\tLOST\tNEW\tFROM")
	for _, n := range r.Nodes {
		for _, d := range n.Drains {
			fmt.Fprintln(t, strings.Join([]string{
				n.Node, d.Namespace, d.Pod, phase(d), human(d.ElapsedSeconds), left(d),
				figure(d.Open), figure(d.Between), figure(d.Idle), figure(d.Lost), figure(d.New), from(d),
			}, "\t"))
		}
		if n.Error != "" {
			fmt.Fprintf(t, "%s\t?\t?\tunknown\t?\t?\t?\t?\t?\t?\t?\t%s\n", n.Node, n.Error)
		}
	}
	return t.Flush()
}

func phase(d lifecycle.DrainStatus) string {
	if d.Reason == "" {
		return d.Phase
	}
	return fmt.Sprintf("%s (%s)", d.Phase, d.Reason)
}

// left is how long the pod may still be held at the most.
func left(d lifecycle.DrainStatus) string {
	switch {
	case d.Phase == lifecycle.Released.String():
		return "-"
	case d.RemainingSeconds == nil:
		return "?"
	}
	return human(*d.RemainingSeconds)
}

func from(d lifecycle.DrainStatus) string {
	if d.Unknown != "" {
		return "unknown: " + d.Unknown
	}
	if len(d.Peers) == 0 {
		return "-"
	}
	var names []string
	for _, p := range d.Peers[:min(rowPeers, len(d.Peers))] {
		names = append(names, p.Client.String())
	}
	text := strings.Join(names, ", ")
	if more := len(d.Peers) + d.MorePeers - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// writePeers writes a row for each session that holds a pod.
func writePeers(w io.Writer, d lifecycle.DrainStatus) error {
	if len(d.Peers) == 0 {
		return nil
	}
	held := "Held by:"
	if d.Phase == lifecycle.Released.String() {
		held = "Open when it was released:"
	}
	fmt.Fprintf(w, "\n%s\n", held)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "CLIENT\tPORT\tSTATE\tREQUEST\tAGE\tQUIET")
	for _, p := range d.Peers {
		age, quiet := "before the drain", "?"
		if p.AgeSeconds != nil {
			age = human(*p.AgeSeconds)
		}
		if p.QuietSeconds != nil {
			quiet = human(*p.QuietSeconds)
		}
		fmt.Fprintf(t, "%s\t%d/%s\t%s\t%s\t%s\t%s\n", p.Client, p.Port, p.Protocol, p.State, cmp.Or(p.Request, "?"), age, quiet)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if d.MorePeers > 0 {
		fmt.Fprintf(w, "and %d more\n", d.MorePeers)
	}
	return nil
}

// figure is a number, or a question mark where nobody knows it.
func figure(n *int) string {
	if n == nil {
		return "?"
	}
	return strconv.Itoa(*n)
}

func human(seconds float64) string {
	return duration.HumanDuration(time.Duration(seconds * float64(time.Second)))
}

// count is a number of things.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
