package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/lifecycle"
)

// release is one run of the command.
type release struct {
	*plugin
	*cluster
	output, reason string
	node           string
	all, yes       bool

	by        string
	namespace string
	// done is what was released, failed what went wrong, a line each.
	done   []released
	failed []string
}

// released is one pod that was let go.
type released struct {
	Node string `json:"node"`
	lifecycle.DrainStatus
}

func (p *plugin) newRelease() *cobra.Command {
	r := &release{plugin: p}
	cmd := &cobra.Command{
		Use:   "release (pod/NAME ... | --node NODE | --all)",
		Short: "Let pods go now, whatever sessions they still have",
		Long: `Ends the wait of pods that conndrain holds: their hooks return within a second, with the
reason ReleasedByUser, and the kubelet stops their containers as usual. Sessions that are
still open are cut then, unless the application ends them itself at SIGTERM.

An Event on each pod (DrainReleased) says who did it and why: the name by which the API
server knows you, and --reason.

With --node and --all it means the pods of all namespaces, unless -n is given, and on a
terminal asks before it acts.`,
		Example: `  # one pod
  kubectl conndrain release pod/web-7d9f --reason "client is stuck"

  # all pods of a node that has to go, without a question
  kubectl conndrain release --node worker-3 --yes

  # the pods of one namespace, on all nodes
  kubectl conndrain release --all -n shop`,
		ValidArgsFunction: p.completePods,
		RunE: func(cmd *cobra.Command, args []string) error {
			return r.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.node, "node", "", "all pods of this node")
	flags.BoolVar(&r.all, "all", false, "all pods of all nodes")
	flags.StringVar(&r.reason, "reason", "", "why, for the Event")
	flags.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	flags.StringVarP(&r.output, "output", "o", "text", "text or json")
	addWords(cmd, "output", "text", "json")
	if err := cmd.RegisterFlagCompletionFunc("node", p.completeNodes); err != nil {
		panic("complete --node: " + err.Error()) // the flag stands above
	}
	return cmd
}

func (r *release) run(ctx context.Context, args []string) error {
	if err := checkOutput(r.output); err != nil {
		return err
	}
	names, err := r.check(args)
	if err != nil {
		return err
	}
	if r.cluster, err = r.connect(); err != nil {
		return err
	}
	if r.namespace, err = r.plugin.namespace(r.cluster, len(names) == 0); err != nil {
		return err
	}
	r.by = r.caller(ctx)
	if len(names) > 0 {
		r.pods(ctx, names)
	} else if err := r.nodes(ctx); err != nil {
		return err
	}
	if err := r.show(); err != nil {
		return err
	}
	for _, line := range r.failed {
		fmt.Fprintln(r.streams.ErrOut, line)
	}
	if len(r.failed) > 0 {
		return exitError(codeError)
	}
	return nil
}

// check returns the pods that are named.
func (r *release) check(args []string) ([]string, error) {
	ways := 0
	for _, given := range []bool{len(args) > 0, r.node != "", r.all} {
		if given {
			ways++
		}
	}
	switch {
	case ways == 0:
		return nil, usagef("say what to release: pod/NAME, or --node NODE, or --all")
	case ways > 1:
		return nil, usagef("say only one of pod/NAME, --node NODE and --all")
	}
	var names []string
	for _, arg := range args {
		kind, name, err := parse(arg)
		if err != nil {
			return nil, err
		}
		if kind != "pod" {
			return nil, usagef("%q is no pod: write pod/%s, or --node %s", arg, name, name)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// pods releases pods one by one.
func (r *release) pods(ctx context.Context, names []string) {
	for _, name := range names {
		if err := r.pod(ctx, name); err != nil {
			r.failed = append(r.failed, "error: "+oneLine(err))
		}
	}
}

func (r *release) pod(ctx context.Context, name string) error {
	pod, err := r.cluster.pod(ctx, r.namespace, name)
	if err != nil {
		return err
	}
	helpers, err := r.helpers(ctx, r.cluster, pod.Spec.NodeName)
	if err != nil {
		return err
	}
	a, err := r.letGo(ctx, helpers[0], "--pod", pod.Namespace+"/"+pod.Name, "--uid", string(pod.UID))
	if err != nil {
		return fmt.Errorf("node %s: %w", pod.Spec.NodeName, err)
	}
	if len(a.Released) == 0 {
		return notHeld(pod)
	}
	r.took(helpers[0].node, a.Released)
	return nil
}

// notHeld says why there is nothing to release.
func notHeld(pod *corev1.Pod) error {
	return fmt.Errorf("there is nothing to release: %s", whyNoDrain(pod))
}

// nodes releases what is held on one node, or on all.
func (r *release) nodes(ctx context.Context) error {
	helpers, err := r.helpers(ctx, r.cluster, r.node)
	if err != nil {
		return err
	}
	if r.interactive && !r.yes {
		held := collect(ctx, r.cluster, helpers, func(d lifecycle.DrainStatus) bool {
			return in(r.namespace)(d) && d.Phase != lifecycle.Released.String()
		})
		if held.drains() > 0 {
			if ok, err := r.ask(ctx, held); err != nil || !ok {
				return err
			}
		}
	}
	args := []string{"--all"}
	if r.namespace != "" {
		args = append(args, "--namespace", r.namespace)
	}
	answers, faults := make([]lifecycle.ReleaseAnswer, len(helpers)), make([]error, len(helpers))
	var g errgroup.Group
	g.SetLimit(maxAsked)
	for i, h := range helpers {
		g.Go(func() error {
			answers[i], faults[i] = r.letGo(ctx, h, args...)
			return nil
		})
	}
	_ = g.Wait() // what went wrong is one of the faults
	for i, h := range helpers {
		if err := faults[i]; err != nil {
			r.failed = append(r.failed, fmt.Sprintf("error: node %s: %s", h.node, oneLine(err)))
			continue
		}
		r.took(h.node, answers[i].Released)
	}
	if len(r.done) == 0 && len(r.failed) == 0 {
		fmt.Fprintln(r.streams.ErrOut, "Nothing is draining, so there is nothing to release.")
	}
	return nil
}

// ask shows what would be released, and blocks until somebody has answered or ctx
// ends.
func (r *release) ask(ctx context.Context, held report) (bool, error) {
	if err := writeTable(r.streams.ErrOut, held); err != nil {
		return false, err
	}
	sessions, unknown := 0, false
	for _, n := range held.Nodes {
		for _, d := range n.Drains {
			if n, ok := d.Blocking(); ok {
				sessions += n
			} else {
				unknown = true
			}
		}
	}
	cut := count(sessions, "session")
	if unknown {
		cut = "at least " + cut
	}
	fmt.Fprintf(r.streams.ErrOut, "Release %s? That may cut %s. [y/N] ", count(held.drains(), "pod"), cut)
	answer := make(chan string, 1)
	go func() { // a read of a terminal ends with the process at the latest
		line, _ := bufio.NewReader(r.streams.In).ReadString('\n') // no answer is no
		answer <- line
	}()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return true, nil
		}
	}
	fmt.Fprintln(r.streams.ErrOut, "Nothing was released.")
	return false, exitError(codeCancelled)
}

func (r *release) letGo(ctx context.Context, h helper, what ...string) (lifecycle.ReleaseAnswer, error) {
	args := append([]string{"release", "--output", "json", "--by", r.by, "--reason", r.reason}, what...)
	var a lifecycle.ReleaseAnswer
	err := r.cluster.ask(ctx, h, &a, args...)
	return a, err
}

func (r *release) took(node string, all []lifecycle.DrainStatus) {
	for _, d := range all {
		r.done = append(r.done, released{node, d})
	}
}

func (r *release) show() error {
	if r.output == "json" {
		list := append([]released{}, r.done...)
		return json.NewEncoder(r.streams.Out).Encode(struct {
			Released []released `json:"released"`
		}{list})
	}
	for _, d := range r.done {
		if _, err := fmt.Fprintln(r.streams.Out, d.sentence()); err != nil {
			return err
		}
	}
	return nil
}

func (d released) sentence() string {
	pod := fmt.Sprintf("pod %s/%s on node %s", d.Namespace, d.Pod, d.Node)
	switch {
	case d.Phase != lifecycle.Released.String():
		return pod + " will be released in a moment"
	case d.Reason != lifecycle.ReleasedByUser:
		return fmt.Sprintf("%s was released already (%s)", pod, d.Reason)
	}
	n, known := d.Blocking()
	switch {
	case !known:
		return pod + " released; how many sessions it left is unknown"
	case n == 0:
		return pod + " released; no session was open"
	}
	return fmt.Sprintf("%s released with %s open: %s", pod, count(n, "session"), from(d.DrainStatus))
}
