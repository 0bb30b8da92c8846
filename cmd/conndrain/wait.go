package main

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// waitFlags are the flags of wait.
type waitFlags struct {
	targetFlags
	untilFlags
	timeout, settle time.Duration
	// everywhere is set where the server's addresses were left out.
	everywhere bool
}

func newWait() *cobra.Command {
	f := &waitFlags{}
	cmd := &cobra.Command{
		Use:   "wait (--address IP | --until requests)",
		Short: "Wait until the last session of an address has ended, or no request is in flight",
		Long: `Wait until the last live session of an address has ended, or the timeout is over.

A session that merely vanishes from the kernel's table (timeout, flush, a full
table) has not ended: it is lost and goes on to block. Where the address belongs
to this network namespace, the sockets here tell whether it still lives, and
decide alone, on TCP, where nothing is tracked.

With --until requests an HTTP/1.x connection holds only while a request is in
flight on it. The server's own sockets tell, so that this has to run in the server's
network namespace: beside it in a virtual machine behind a load balancer. It needs no
right; without CAP_NET_ADMIN these sockets decide alone, and it says so. --address may
then be left out. HTTP/2 and gRPC cannot be seen into: use it for HTTP/1.x.

Exit codes: 0 drained, 1 error, 2 usage, 3 expired with something left,
130 cancelled by SIGINT, SIGTERM or SIGHUP. Whoever stops the server afterwards does it
on 0 and on 3: after 3 there is no more time. Progress goes to stderr, the result
to stdout; what nobody could know is null in it, and never 0.

Needs CAP_NET_ADMIN in the network namespace that tracks the connections: for a
pod that is the node's. --until requests needs none.`,
		Example: `  # until nothing is connected to the pod any more, five minutes at most
  conndrain wait --address 10.244.1.7 --timeout 5m

  # only port 8080; keep-alive connections without a packet for 10 s do not block
  conndrain wait --address 10.244.1.7 --port 8080 --idle-after 10s

  # both addresses of a dual-stack pod, 5 s without a new session, for a script
  conndrain wait --address 10.244.1.7,fd00:244:1::7 --settle 5s --output json

  # beside a server that is out of its load balancer: until no request is in flight on
  # port 8080, for a minute at most, then stop it
  conndrain wait --until requests --port 8080 --settle 5s --timeout 60s
  case $? in 0|3) systemctl stop server;; esac`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			return runWait(cmd, f)
		},
	}
	f.targetFlags.add(cmd)
	cmd.Flags().Lookup("address").Usage += ", but for --until requests"
	fs := cmd.Flags()
	f.untilFlags.add(cmd)
	durationVar(fs, &f.timeout, "timeout", time.Minute, "when to give up; what is left then was cut")
	durationVar(fs, &f.settle, "settle", 0, "quiet time: no new session for this long, counted while waiting (default none)")
	durationVar(fs, &f.target.LostAfter, "lost-after", 0, "a lost session ends this long after its entry vanished (default off)")
	f.addLast(cmd)
	for _, free := range []string{"timeout", "settle", "lost-after"} {
		completeWords(cmd, free)
	}
	return cmd
}

// validate returns a usage error for what each flag alone cannot know.
func (f *waitFlags) validate() error {
	if err := f.validateUntil(); err != nil {
		return err
	}
	if err := f.targetFlags.validate(); err != nil {
		return err
	}
	if f.timeout == 0 {
		return usagef("--timeout is 0: use more, or 'conndrain sessions' to look once")
	}
	if f.settle > f.timeout {
		return usagef("--settle %s is longer than --timeout %s, so that it could never pass: use less of it, or a longer --timeout", plain(f.settle), plain(f.timeout))
	}
	return nil
}

// gcPercent keeps the memory of a wait for thousands of sessions small. They are
// made once and then kept, so that collecting more often costs next to nothing.
const gcPercent = 25

func runWait(cmd *cobra.Command, f *waitFlags) error {
	debug.SetGCPercent(gcPercent)
	stderr := cmd.ErrOrStderr()
	p := &progress{
		w: stderr, screen: terminalOf(stderr),
		command: cmd.CommandPath(), subject: f.subject(),
	}
	reader := conntrack.NewReader(conntrack.Config{Snapshot: f.snapshot})
	w := &waiter{
		open:    opener(reader, f.target),
		policy:  lifecycle.Policy{Settle: f.settle, SettleMax: f.timeout + time.Second},
		timeout: f.timeout,
		list:    f.output == formatText,
		show:    p.show,
	}
	if f.until.OfRequests() {
		w.judge, w.say, p.requests = f.judge(), p.note, true
	}
	look, err := f.looker()
	if err != nil {
		return err
	}
	if look != nil {
		w.sockets, w.openAlone = newSockets(look, p.note), w.open
		withSockets := f.target
		withSockets.SocketsReported = true
		w.open = opener(reader, withSockets)
	}
	if w.judge != nil {
		w.open = orAlone(w.open, w.judge.eyes, f.scope())
	}
	r, err := w.wait(cmd.Context())
	defer w.close()
	p.clear()
	if err != nil {
		return err
	}
	if r.counts.Source == conntrack.FromSockets && w.judge == nil {
		p.note(blindNote)
	}
	if err := f.write(cmd, r); err != nil {
		return err
	}
	switch r.reason {
	case lifecycle.Expired:
		return exitError(codeExpired)
	case lifecycle.Cancelled:
		return exitError(codeCancelled)
	default:
		return nil
	}
}

// write writes the result as the last of stdout.
func (f *waitFlags) write(cmd *cobra.Command, r result) error {
	if f.output == formatJSON {
		if err := json.NewEncoder(cmd.OutOrStdout()).Encode(r); err != nil {
			return fmt.Errorf("write result: %w", err)
		}
		return nil
	}
	if err := r.writeText(cmd.OutOrStdout(), f.subject()); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
