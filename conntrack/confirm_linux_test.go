package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/bpf"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// starved is a kernel whose events are read only while its gate is open.
type starved struct {
	kernel
	gate chan struct{}
}

type starvedListener struct {
	listener
	gate chan struct{}
}

func (k starved) listen(filter []bpf.RawInstruction) (listener, error) {
	l, err := k.kernel.listen(filter)
	return starvedListener{l, k.gate}, err
}

func (l starvedListener) receive(each func(message) error) error {
	<-l.gate
	return l.listener.receive(each)
}

// A reader that is kept from reading its events must not believe a zero that they
// contradict.
func TestConfirmWaitsForUnreadEvents(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	older := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	r := newReader(lab.Node)
	gate := make(chan struct{})
	r.kernel = starved{r.kernel, gate}
	w := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 1, 0, 0)
	younger := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	older.end(t)
	counts(t, w, 0, 0, 0) // as far as it is known
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if c, err := w.Confirm(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v: confirmed before the event was read", c, err)
	}
	close(gate)
	if c, err := w.Confirm(t.Context()); err != nil || !c.Known || c.Open != 1 || c.New != 1 {
		t.Errorf("%+v, %v; want the younger session open", c, err)
	}
	younger.end(t)
	counts(t, w, 0, 0, 0)
	if c, err := w.Confirm(t.Context()); err != nil || !c.Known || c.Blocking() != 0 {
		t.Errorf("%+v, %v; want a zero", c, err)
	}
}

// What began to talk again since the last look is seen.
func TestConfirmLooksAtQuietSessions(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}, IdleAfter: 2 * time.Second})
	c := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	say(t, c.client, c.server)
	counts(t, w, 0, 1, 0)
	say(t, c.client, c.server)
	if got, err := w.Confirm(t.Context()); err != nil || got.Open != 1 {
		t.Errorf("%+v, %v; want it open again", got, err)
	}
}

// Events that are switched off, also for a while, hide nothing.
func TestConfirmWithoutEvents(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	events := func(v string) { must(t, lab.Node.Sysctl("net/netfilter/nf_conntrack_events", v)) }
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	events("0")
	eventually(t, "it is noticed that there are no events", func() bool {
		w.reader.mu.Lock()
		defer w.reader.mu.Unlock()
		return w.hosts[0].deaf
	})
	a := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	events("2")
	if got, err := w.Confirm(t.Context()); err != nil || got.Open != 1 {
		t.Errorf("%+v, %v; want the session that began unheard", got, err)
	}
	a.end(t)
	counts(t, w, 0, 0, 0)
}

// No end is missed where the states that a session ends in last for one second.
func TestShortEndsAreSeen(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	for _, state := range []string{"close", "time_wait", "last_ack", "fin_wait", "close_wait"} {
		must(t, lab.Node.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_"+state, "1"))
	}
	must(t, lab.Node.Sysctl("net/netfilter/nf_conntrack_events", "0"))
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	var older []connection
	for range 20 {
		older = append(older, connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort)))
	}
	must(t, lab.Node.Sysctl("net/netfilter/nf_conntrack_events", "2"))
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 20, 0, 0)
	for i, c := range older {
		if i%2 == 0 {
			must(t, c.server.SetLinger(0)) // by a reset
			must(t, c.server.Close())
			continue
		}
		c.end(t)
	}
	counts(t, w, 0, 0, 0)
}
