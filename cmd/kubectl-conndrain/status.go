package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/node"
)

// status is one run of the command.
type status struct {
	*plugin
	*cluster
	output string
	watch  bool
	// node and pod are what was asked about; namespace is empty for all of them.
	node, podName, namespace string
}

func (p *plugin) newStatus() *cobra.Command {
	s := &status{plugin: p}
	cmd := &cobra.Command{
		Use:   "status [NODE | pod/NAME]",
		Short: "Show which pods are held, by which sessions, and for how long still",
		Long: `Shows the pods that conndrain holds, or has let go and that are still ending: of the
current namespace, of all of them (-A), of one node, or one pod with its sessions.

PHASE is withdrawing (new traffic is still sent to the pod), draining (sessions hold it),
settling (nothing holds it, but something new may begin) or released (conndrain has let it
go: what is left are its containers). HELD is the time since its first hook began, LEFT the
time to the deadline. OPEN and LOST sessions hold it, IDLE ones do not; on BETWEEN of the open
ones no request is in flight, as far as its hook can tell. NEW ones began during the drain.
FROM are the clients: first those that were there before the drain, then the
oldest. A question mark stands for what nobody knows.

A helper that cannot be asked is a row that says why, and exit code 1.`,
		Example: `  # what drains in this namespace, in all of them, on a node
  kubectl conndrain status
  kubectl conndrain status -A
  kubectl conndrain status worker-3

  # why is this pod still there?
  kubectl conndrain status pod/web-7d9f --watch

  # for programs
  kubectl conndrain status -A --output json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%d things to show: name one node or one pod", len(args))
			}
			return nil
		},
		ValidArgsFunction: p.completeStatus,
		RunE: func(cmd *cobra.Command, args []string) error {
			return s.run(cmd.Context(), args)
		},
	}
	cmd.Flags().StringVarP(&s.output, "output", "o", "text", "text or json")
	cmd.Flags().BoolVarP(&s.watch, "watch", "w", false, "show it again every two seconds")
	addWords(cmd, "output", "text", "json")
	p.addAllNamespaces(cmd)
	return cmd
}

func (s *status) run(ctx context.Context, args []string) error {
	if err := checkOutput(s.output); err != nil {
		return err
	}
	for _, arg := range args {
		kind, name, err := parse(arg)
		switch {
		case err != nil:
			return err
		case kind == "pod":
			s.podName = name
		default:
			s.node = name
		}
	}
	var err error
	if s.cluster, err = s.connect(); err != nil {
		return err
	}
	if s.podName != "" && s.allNamespaces {
		return usagef("a pod is in one namespace: give -n, not -A")
	}
	if s.namespace, err = s.plugin.namespace(s.cluster, s.node != ""); err != nil {
		return err
	}
	if s.watch {
		return s.follow(ctx)
	}
	v, err := s.look(ctx)
	if err != nil {
		return err
	}
	if err := s.show(v); err != nil {
		return err
	}
	for _, line := range v.talk {
		fmt.Fprintln(s.streams.ErrOut, line)
	}
	if len(v.report.faults()) > 0 {
		return exitError(codeError)
	}
	return nil
}

// view is what is shown at one moment.
type view struct {
	report report
	// talk is what a person is told beside the data.
	talk []string
}

func (s *status) look(ctx context.Context) (view, error) {
	if s.podName != "" {
		return s.lookAtPod(ctx)
	}
	helpers, err := s.helpers(ctx, s.cluster, s.node)
	if err != nil {
		return view{}, err
	}
	all := collect(ctx, s.cluster, helpers, in(""))
	elsewhere := all.drains()
	for i, n := range all.Nodes {
		all.Nodes[i].Drains = filtered(n.Drains, in(s.namespace))
	}
	v := view{report: all, talk: all.remarks()}
	switch elsewhere -= all.drains(); {
	case all.drains() > 0:
	case elsewhere > 0:
		v.talk = append(v.talk, fmt.Sprintf("Nothing is draining in namespace %s, but %s in others: -A shows them.", s.namespace, count(elsewhere, "pod")))
	case len(all.faults()) == len(all.Nodes):
	case len(all.faults()) > 0:
		v.talk = append(v.talk, "Nothing is draining on the nodes that answer.")
	case s.node != "":
		v.talk = append(v.talk, fmt.Sprintf("Nothing is draining on node %s.", s.node))
	default:
		v.talk = append(v.talk, "Nothing is draining.")
	}
	return v, nil
}

// filtered leaves out drains, and leaves a list that is unknown so.
func filtered(all []lifecycle.DrainStatus, keep func(lifecycle.DrainStatus) bool) []lifecycle.DrainStatus {
	if all == nil {
		return nil
	}
	left := []lifecycle.DrainStatus{}
	for _, d := range all {
		if keep(d) {
			left = append(left, d)
		}
	}
	return left
}

func (s *status) lookAtPod(ctx context.Context) (view, error) {
	pod, err := s.pod(ctx, s.namespace, s.podName)
	if err != nil {
		return view{}, err
	}
	helpers, err := s.helpers(ctx, s.cluster, pod.Spec.NodeName)
	if err != nil {
		return view{}, err
	}
	r := collect(ctx, s.cluster, helpers, func(d lifecycle.DrainStatus) bool { return d.UID == string(pod.UID) })
	v := view{report: r, talk: r.remarks()}
	if r.drains() == 0 && len(r.faults()) == 0 {
		v.talk = append(v.talk, whyNoDrain(pod))
	}
	return v, nil
}

// show writes the data.
func (s *status) show(v view) error {
	if s.output == "json" {
		return json.NewEncoder(s.streams.Out).Encode(v.report)
	}
	return s.writeText(s.streams.Out, v)
}

func (s *status) writeText(w io.Writer, v view) error {
	if v.report.drains() == 0 && len(v.report.faults()) == 0 {
		return nil // the talk says so
	}
	if err := writeTable(w, v.report); err != nil {
		return err
	}
	if s.podName == "" {
		return nil
	}
	for _, n := range v.report.Nodes {
		for _, d := range n.Drains {
			if err := writePeers(w, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// whyNoDrain says why conndrain does not hold a pod.
func whyNoDrain(pod *corev1.Pod) string {
	name := pod.Namespace + "/" + pod.Name
	switch {
	case pod.DeletionTimestamp == nil && !node.HasHook(pod):
		return fmt.Sprintf("Pod %s is not terminating, and no container of it has a preStop hook of conndrain: its deletion will not wait for sessions.", name)
	case pod.DeletionTimestamp == nil:
		return fmt.Sprintf("Pod %s is not terminating: conndrain holds it only once it is deleted.", name)
	case !node.HasHook(pod):
		return fmt.Sprintf("Pod %s is terminating, but no container of it has a preStop hook of conndrain: that is not what holds it.", name)
	}
	return fmt.Sprintf("Pod %s is terminating and has a preStop hook of conndrain, but the hook has not asked the node's helper: it may only just begin, have ended, or be kept from the helper by a policy; in the last case it waits by the pod's own sockets. kubectl -n %s describe pod %s shows its Events.",
		name, pod.Namespace, pod.Name)
}

// parse takes a word apart: a node's name, or a kind and a name.
func parse(word string) (kind, name string, err error) {
	kind, name, ok := strings.Cut(word, "/")
	if !ok {
		kind, name = "node", word
	}
	switch kind {
	case "pod", "pods", "po":
		kind = "pod"
	case "node", "nodes", "no":
		kind = "node"
	default:
		return "", "", usagef("%q is neither a node nor pod/NAME", word)
	}
	if name == "" || strings.Contains(name, "/") {
		return "", "", usagef("%q names nothing: write %s/NAME", word, kind)
	}
	return kind, name, nil
}

func checkOutput(output string) error {
	if output != "text" && output != "json" {
		return usagef("--output %s: it is text or json", output)
	}
	return nil
}
