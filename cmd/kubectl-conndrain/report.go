package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/conndrain/conndrain/lifecycle"
)

// report is what is known of the drains that were asked for.
type report struct {
	Nodes []nodeReport `json:"nodes"`
}

// nodeReport is what one node's helper says, or why it says nothing: its drains
// are then unknown, which is null and not an empty list.
type nodeReport struct {
	lifecycle.NodeStatus
	Error string `json:"error,omitempty"`
}

// maxAsked is how many helpers are asked at the same time.
const maxAsked = 16

// collect asks the helpers, and keeps of their drains those of a namespace. Each
// helper that cannot be asked is an entry that says why.
func collect(ctx context.Context, c *cluster, helpers []helper, keep func(lifecycle.DrainStatus) bool) report {
	r := report{Nodes: make([]nodeReport, len(helpers))}
	var g errgroup.Group
	g.SetLimit(maxAsked)
	for i, h := range helpers {
		g.Go(func() error {
			n := &r.Nodes[i]
			if err := c.ask(ctx, h, &n.NodeStatus, "status", "--output", "json"); err != nil {
				n.NodeStatus, n.Error = lifecycle.NodeStatus{}, oneLine(err)
			} else {
				n.Drains = slices.DeleteFunc(n.Drains, func(d lifecycle.DrainStatus) bool { return !keep(d) })
				n.Drains = append([]lifecycle.DrainStatus{}, n.Drains...)
			}
			n.Node = h.node
			return nil
		})
	}
	_ = g.Wait() // what went wrong stands in the report
	return r
}

func in(namespace string) func(lifecycle.DrainStatus) bool {
	return func(d lifecycle.DrainStatus) bool { return namespace == "" || d.Namespace == namespace }
}

// faults are the helpers that could not be asked, a line each.
func (r report) faults() []string {
	var all []string
	for _, n := range r.Nodes {
		if n.Error != "" {
			all = append(all, fmt.Sprintf("node %s: %s", n.Node, n.Error))
		}
	}
	return all
}

// remarks are what a person should know of the helpers, a line each.
func (r report) remarks() []string {
	var all []string
	for _, n := range r.Nodes {
		if n.Disabled {
			all = append(all, fmt.Sprintf("node %s: conndrain is switched off (CONNDRAIN_DISABLE): hooks only sleep, whatever is open", n.Node))
		}
		for _, why := range n.NotReady {
			all = append(all, fmt.Sprintf("node %s: its helper is not ready: %s", n.Node, why))
		}
	}
	return all
}

// drains counts what is in the report.
func (r report) drains() int {
	n := 0
	for _, node := range r.Nodes {
		n += len(node.Drains)
	}
	return n
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
