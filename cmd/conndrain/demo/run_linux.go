package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/conndrain/conndrain/lifecycle"
)

// run runs the demo, where necessary in a process with the rights to. A signal is
// no error of the parts below but the way out of them.
func run(cmd *cobra.Command, o options) error {
	ctx := cmd.Context()
	if !privileged() && !inner() {
		return reexec(ctx, cmd, o)
	}
	talk := newText(cmd.OutOrStdout())
	if o.output == outputJSON {
		talk = newText(cmd.ErrOrStderr())
	}
	r, err := play(ctx, talk, o.seed)
	if ctx.Err() != nil {
		return cancelled(cmd, o)
	}
	if err != nil {
		return err
	}
	if o.output == outputJSON {
		if err := r.writeJSON(cmd.OutOrStdout()); err != nil {
			return fmt.Errorf("write result: %w", err)
		}
	}
	if r.Reason != string(lifecycle.Drained) || r.cut() > 0 {
		return errExpired
	}
	return nil
}

// cancelled says that the demo ended early.
func cancelled(cmd *cobra.Command, o options) error {
	said := "Cancelled: all that was built is gone again"
	if o.output == outputJSON {
		said += ", and there is no result"
	}
	fmt.Fprintln(cmd.ErrOrStderr(), said+".")
	return errCancelled
}

// play builds the scene, deletes the pod and waits, and tells of it. It blocks
// until all of the scene is gone again.
func play(ctx context.Context, talk *text, seed uint64) (r result, err error) {
	s, err := newScene(newPlan(seed))
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.start(ctx); err != nil {
		return result{}, fmt.Errorf("start traffic: %w", err)
	}
	r = s.result(seed)
	talk.intro(r, s.early())
	if err := s.delete(ctx); err != nil {
		return result{}, err
	}
	w, err := newWait(ctx, s)
	if err != nil {
		return result{}, fmt.Errorf("watch the pod: %w", err)
	}
	defer func() { err = errors.Join(err, w.close()) }()
	talk.deleted(r)
	if err := w.run(ctx, talk, &r); err != nil {
		return result{}, err
	}
	r.Downloads = s.record()
	r.Table = compare(r.ends(), time.Duration(r.Released), r.cut())
	talk.summary(r)
	if talk.err != nil {
		return result{}, fmt.Errorf("write: %w", talk.err)
	}
	return r, nil
}
