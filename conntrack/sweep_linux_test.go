package conntrack

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// stalling is a kernel that answers no exact question while gate is closed.
type stalling struct {
	kernel
	gate chan struct{}
}

type stallingAsker struct {
	asker
	gate chan struct{}
}

func (k stalling) asker() (asker, error) {
	a, err := k.kernel.asker()
	return stallingAsker{a, k.gate}, err
}

func (a stallingAsker) ask(keys []flowKey, answer func(int, *entry)) error {
	<-a.gate
	return a.asker.ask(keys, answer)
}

// A reader that is kept from looking must not take that for silence.
func TestStalledLooksMakeNobodyIdle(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	c := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	r := newReader(lab.Node)
	gate := make(chan struct{})
	r.kernel = stalling{r.kernel, gate}
	w := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}, IdleAfter: time.Second})
	talk := time.NewTicker(100 * time.Millisecond)
	defer talk.Stop()
	for range 40 {
		<-talk.C
		say(t, c.client, c.server)
		if c := w.Counts(); c.Idle != 0 || c.Open != 1 {
			t.Errorf("%+v without a look, want it open", c)
			break
		}
	}
	close(gate)
	counts(t, w, 0, 1, 0)
}

// A sweep whose time has passed is due at once, however late it is.
func TestLateSweepIsDueAtOnce(t *testing.T) {
	t.Parallel()
	s := &sweeper{e: &engine{r: NewReader(Config{})}, known: 1, urgent: 1, nextFast: time.Now().Add(-time.Hour), nextSlow: time.Now()}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.rest(ctx); err != nil {
		t.Fatalf("rest: %v, want it to return at once", err)
	}
}
