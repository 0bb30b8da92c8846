package node

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

var errFog = errors.New("no snapshot is in step")

// foggy is a watch that knows nothing for a while, as after an overflow or a resize
// of the table until the next snapshot is there.
type foggy struct {
	watch
	fog *atomic.Bool
}

func (f foggy) Counts() conntrack.Counts {
	if f.fog.Load() {
		return conntrack.Counts{}
	}
	return f.watch.Counts()
}

func (f foggy) Confirm(ctx context.Context) (conntrack.Counts, error) {
	if f.fog.Load() {
		return conntrack.Counts{}, errFog
	}
	return f.watch.Confirm(ctx)
}

func (f foggy) Err() error {
	if f.fog.Load() {
		return errFog
	}
	return f.watch.Err()
}

func newFoggy(t *testing.T) (*scene, *atomic.Bool) {
	t.Helper()
	fog := new(atomic.Bool)
	s := prepareScene(t, netlab.LabOptions{}, nil, func(c *Config) { c.Policy = quick })
	open := s.helper.drainer.open
	s.helper.drainer.open = func(ctx context.Context, target conntrack.Target) (watch, error) {
		w, err := open(ctx, target)
		if err != nil {
			return nil, err
		}
		return foggy{w, fog}, nil
	}
	s.start()
	return s, fog
}

// P22: while nothing is known in the middle of a drain, nobody is let go, although
// no session is left; what is known again releases the pod.
func TestP22UnknownInTheMiddleIsNoZero(t *testing.T) {
	t.Parallel()
	s, fog := newFoggy(t)
	c := s.connect(s.serve())
	s.delete(900)
	s.withdraw()
	p := s.prestop()
	s.says(p, "to=draining")
	fog.Store(true)
	c.end(t)
	p.holds(quick.SettleMax + 2*time.Second)
	if a := s.ask(lifecycle.DrainRequest{}); a.Released() || a.Open != nil {
		t.Errorf("answer %+v, want nothing known", a)
	}
	fog.Store(false)
	p.returns()
	s.says(p, "reason=Drained helper=true")
	s.eventNaming("Drained: The last session has ended")
}

// P22: what is unknown at the deadline is cut, and nobody calls it drained.
func TestP22UnknownAtTheDeadlineIsNotDrained(t *testing.T) {
	t.Parallel()
	s, fog := newFoggy(t)
	c := s.connect(s.serve())
	s.delete(10)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	fog.Store(true)
	c.end(t)
	begin := time.Now()
	a := s.hook()
	if a.Reason != lifecycle.Expired || a.Cut != nil || time.Since(begin) > 8*time.Second+patience/10 {
		t.Errorf("answer %+v after %s, want expired with an unknown number cut", a, time.Since(begin))
	}
	s.eventNaming("DrainExpired: ", "what was cut is unknown", errFog.Error())
}

// P22: and nobody is permitted to judge what cannot be confirmed.
func TestP22UnknownIsNotPermitted(t *testing.T) {
	t.Parallel()
	s, fog := newFoggy(t)
	j := s.judge(s.connect(s.serve()))
	s.annotate(map[string]string{"conndrain.io/until": "requests"})
	s.delete(900)
	s.withdraw()
	j.permitted(true)
	fog.Store(true)
	j.permitted(false)
	j.leaves(0)
	if a := j.polls(time.Second); a.Released() || a.WhenQuiet != nil {
		t.Errorf("answer %+v, want nothing permitted", a)
	}
	fog.Store(false)
	j.permitted(true)
}
