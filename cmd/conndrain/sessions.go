package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/conndrain/conndrain/conntrack"
)

// sessionsFlags are the flags of sessions.
type sessionsFlags struct {
	targetFlags
	watch bool
}

func newSessions() *cobra.Command {
	f := &sessionsFlags{}
	cmd := &cobra.Command{
		Use:   "sessions --address IP",
		Short: "Show the live sessions of an address",
		Long: `Show the live sessions of an address, from one look at the kernel's table, or
with --watch as they come and go until it is interrupted.

Columns: CLIENT is the client's own address ("as" what the server sees where it is
masqueraded), SERVER where it was led to, ASKED FOR what it asked for (a Service,
a node port or the server itself), STATE whether it blocks, KERNEL the kernel's
word, QUIET how long there was no packet at the least, CLOSED FIRST who sent the
first FIN, and inside the server's own network namespace REQUEST what an HTTP/1.x
connection is doing. Where a terminal is too narrow --watch leaves out some of them.

Where --watch writes lines, each begins with a sign: = present at the start,
+ opened, ~ changed, - ended, * known, ? unknown for now.

Exit codes: 0 done, 1 error, 2 usage, 130 interrupted.

Needs CAP_NET_ADMIN in the network namespace that tracks the connections: for a
pod that is the node's.`,
		Example: `  # who is connected to the pod now
  conndrain sessions --address 10.244.1.7

  # port 8080 only, renewed while they come and go
  conndrain sessions --address 10.244.1.7 --port 8080 --watch

  # the pod's own connections to others, for a program
  conndrain sessions --address 10.244.1.7 --direction outbound --output json`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.validate(); err != nil {
				return err
			}
			if f.watch {
				return followSessions(cmd, f)
			}
			return showSessions(cmd, f)
		},
	}
	f.add(cmd)
	switchVar(cmd.Flags(), &f.watch, "watch", "",
		"go on: renew on a terminal, otherwise one line for each change (one JSON object with --output json)")
	f.addLast(cmd)
	return cmd
}

// collectFrom is how much memory one look may take before any of it is collected.
// All of it is needed until the process ends a moment later, and to look for
// garbage would cost a fifth of the time.
const collectFrom = 64 << 20

func showSessions(cmd *cobra.Command, f *sessionsFlags) error {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(collectFrom)
	sessions, counts, err := f.snapshotNow(cmd.Context())
	if err != nil {
		return err
	}
	d := f.doingNow(cmd.Context())
	if f.output == formatJSON {
		return writeJSON(cmd.OutOrStdout(), sessions, d, counts)
	}
	if len(sessions) > 0 {
		if _, err := newTable(sessions, d).WriteTo(cmd.OutOrStdout()); err != nil {
			return fmt.Errorf("write sessions: %w", err)
		}
	}
	fmt.Fprintln(cmd.ErrOrStderr(), summary(f.subject(), len(sessions), counts))
	return nil
}

// snapshotNow takes one snapshot. It returns at once when the context ends, even
// if the kernel hangs.
func (f *sessionsFlags) snapshotNow(ctx context.Context) ([]conntrack.Session, conntrack.Counts, error) {
	type snapshot struct {
		sessions []conntrack.Session
		counts   conntrack.Counts
		err      error
	}
	c := make(chan snapshot, 1)
	go func() {
		var s snapshot
		s.sessions, s.counts, s.err = conntrack.NewReader(conntrack.Config{Snapshot: f.snapshot}).Sessions(ctx, f.target)
		c <- s
	}()
	select {
	case s := <-c:
		if ctx.Err() != nil {
			return nil, conntrack.Counts{}, exitError(codeCancelled)
		}
		return s.sessions, s.counts, s.err
	case <-ctx.Done():
		return nil, conntrack.Counts{}, exitError(codeCancelled)
	}
}

// writeJSON writes one object on one line.
func writeJSON(w io.Writer, sessions []conntrack.Session, d doing, counts conntrack.Counts) error {
	shown := make([]describedSession, len(sessions))
	for i := range sessions {
		shown[i] = describedSession{&sessions[i], d.of(&sessions[i])}
	}
	b := bufio.NewWriterSize(w, 64<<10)
	err := json.NewEncoder(b).Encode(struct {
		Sessions []describedSession `json:"sessions"`
		countsJSON
	}{shown, countsOf(counts)})
	if err == nil {
		err = b.Flush()
	}
	if err != nil {
		return fmt.Errorf("write sessions: %w", err)
	}
	return nil
}

// describedSession is a session in an object, with what it is doing, if that is known.
type describedSession struct {
	*conntrack.Session
	request string
}

// MarshalJSON adds a field to the session's own.
func (s describedSession) MarshalJSON() ([]byte, error) {
	b, err := s.Session.MarshalJSON()
	if err != nil || s.request == "" {
		return b, err
	}
	return append(b[:len(b)-1], `,"request":"`+s.request+`"}`...), nil
}

// countsJSON are counts in an object. What is unknown is null.
type countsJSON struct {
	Open *int `json:"open"`
	Idle *int `json:"idle"`
	Lost *int `json:"lost"`
}

func countsOf(c conntrack.Counts) countsJSON {
	if !c.Known {
		return countsJSON{}
	}
	return countsJSON{&c.Open, &c.Idle, &c.Lost}
}

// summary says in one sentence how many sessions there are.
func summary(subject string, shown int, c conntrack.Counts) string {
	switch {
	case !c.Known:
		return fmt.Sprintf("The sessions of %s are unknown.", subject)
	case shown == 0:
		return fmt.Sprintf("No session of %s.", subject)
	}
	text := fmt.Sprintf("%s of %s: %d open, %d idle, %d lost", plural(shown, "session"), subject, c.Open, c.Idle, c.Lost)
	if c.Opening > 0 {
		text += fmt.Sprintf(", %d opening", c.Opening)
	}
	return text + "."
}
