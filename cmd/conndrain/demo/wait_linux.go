package demo

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// deadline is when the wait gives up. No plan comes near it.
const deadline = 45 * time.Second

// wait follows the pod's sessions on the node as `conndrain wait` does.
type wait struct {
	scene  *scene
	reader *conntrack.Reader
	// watch has the idle rule, strict does not and decides nothing.
	watch, strict *conntrack.Watch

	shown map[string]phase
}

// phase is where a download stands.
type phase uint8

const (
	toCome phase = iota
	runs
	complete
	broken
)

// newWait begins to watch.
func newWait(ctx context.Context, s *scene) (*wait, error) {
	w := &wait{
		scene:  s,
		reader: conntrack.NewReader(conntrack.Config{NetNS: s.lab.Node.FD()}),
		shown:  make(map[string]phase),
	}
	target := conntrack.Target{
		Addresses: []netip.Addr{s.lab.PodAddr},
		Ports:     []uint16{podPort},
		IdleAfter: idleAfter,
	}
	var err error
	if w.watch, err = w.reader.Watch(ctx, target); err != nil {
		return nil, err
	}
	target.IdleAfter = 0
	if w.strict, err = w.reader.Watch(ctx, target); err != nil {
		return nil, errors.Join(err, w.watch.Close())
	}
	return w, nil
}

func (w *wait) close() error { return errors.Join(w.watch.Close(), w.strict.Close()) }

// run waits for the last session, shows a line each second, ends the pod and
// records all in r.
func (w *wait) run(ctx context.Context, talk *text, r *result) error {
	for _, d := range w.scene.downloads {
		w.shown[d.name] = phaseOf(d)
	}
	var next time.Duration
	var err error
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		after := now.Sub(w.scene.deleted)
		counts := w.watch.Counts()
		decision := lifecycle.Decide(lifecycle.Observation{
			WithdrawnAt: w.scene.deleted,
			Deadline:    w.scene.deleted.Add(deadline),
			Known:       counts.Known,
			Blocking:    counts.Blocking(),
			Opening:     counts.Opening,
			LastNew:     counts.LastNew,
		}, now)
		if decision.Phase == lifecycle.Released && counts.Known {
			// A zero has to rest on nothing older than the question.
			if counts, err = w.watch.Confirm(ctx); err != nil {
				return fmt.Errorf("confirm: %w", err)
			}
			if counts.Blocking() > 0 && now.Before(w.scene.deleted.Add(deadline)) {
				continue
			}
		}
		if decision.Phase == lifecycle.Released {
			r.Released, r.Reason = seconds(after), string(decision.Reason)
			return w.release(ctx, talk, r, counts)
		}
		// The first moments of every wait are unknown and not worth a line.
		if after >= next && (counts.Known || after >= time.Second) {
			w.line(talk, r, after, counts, "")
			next = after.Truncate(time.Second) + time.Second
		}
		if talk.err != nil {
			return fmt.Errorf("write: %w", talk.err)
		}
		timer.Reset(min(decision.Next.Sub(now), max(next-after, 10*time.Millisecond)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-w.watch.Changes():
		}
	}
}

// release looks at what else lives, ends the pod and shows the last line.
func (w *wait) release(ctx context.Context, talk *text, r *result, counts conntrack.Counts) error {
	for _, s := range w.watch.Sessions() {
		if s.State == conntrack.Idle {
			r.Idle.Sessions++
			r.Idle.Quiet = max(r.Idle.Quiet, seconds(s.Quiet))
		}
	}
	r.Idle.OpenWithout = w.strict.Counts().Blocking()
	all, _, err := w.reader.Sessions(ctx, conntrack.Target{
		Addresses: []netip.Addr{w.scene.lab.PodAddr}, Direction: conntrack.Both,
	})
	if err != nil {
		return fmt.Errorf("look at the pod's other sessions: %w", err)
	}
	for _, s := range all {
		switch {
		case s.Outbound:
			r.Uncounted.Outbound++
		case s.Server.Port() == metricsPort:
			r.Uncounted.Metrics++
		}
	}
	w.scene.kill()
	how := "the pod ends"
	if r.Reason != string(lifecycle.Drained) {
		how = r.Reason + ": " + how
	}
	w.line(talk, r, time.Duration(r.Released), counts, how)
	return nil
}

// line shows and records one moment, with what happened since the last one.
func (w *wait) line(talk *text, r *result, after time.Duration, c conntrack.Counts, more string) {
	m := moment{After: seconds(after), Known: c.Known, Open: c.Open, Idle: c.Idle, Lost: c.Lost, New: c.New}
	r.Timeline = append(r.Timeline, m)
	var running, happened []string
	ended := map[phase][]string{}
	for _, d := range w.scene.downloads {
		was, is := w.shown[d.name], phaseOf(d)
		w.shown[d.name] = is
		switch is {
		case toCome:
			running = append(running, " ")
		case runs:
			running = append(running, d.name)
		default:
			running = append(running, ".")
		}
		if was == toCome && is != toCome {
			happened = append(happened, d.name+" comes late")
		}
		if was != is && is >= complete {
			ended[is] = append(ended[is], d.name)
		}
	}
	if len(ended[complete]) > 0 {
		happened = append(happened, strings.Join(ended[complete], ", ")+" complete")
	}
	if len(ended[broken]) > 0 {
		happened = append(happened, strings.Join(ended[broken], ", ")+" cut")
	}
	if more != "" {
		happened = append(happened, more)
	}
	talk.moment(m, strings.Join(running, " "), strings.Join(happened, "; "))
}

func phaseOf(c *client) phase {
	begun, ended, err := c.times()
	switch {
	case begun.IsZero():
		return toCome
	case ended.IsZero():
		return runs
	case err != nil:
		return broken
	}
	return complete
}
