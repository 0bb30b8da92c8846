//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle/requests"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// trial is one kind of traffic on one server over one link.
type trial struct {
	server string
	kind   kind
	link   string
	direct bool
	// number is the trial's place in its batch, which tells whose a request is.
	number uint64
	port   uint16
	seed   uint64
}

// startsWithin is the part of a trial's time within which it starts.
const startsWithin = 10

// requestsOf is how many numbers of requests a trial has.
const requestsOf = 1e9

// running is a trial that runs.
type running struct {
	trial
	truth   *truth
	verdict judge
	looks   []looked
	marks   []mark
	places  map[netip.AddrPort]uint32
	clients []netip.AddrPort
	record  *recorder
}

// looked is when one look at all connections of the trial began and had ended.
type looked struct{ from, to time.Time }

// mark is what was said of one connection at one look.
type mark struct {
	look, client uint32
	verdicts
}

func newRunning(t trial, record *recorder) *running {
	return &running{
		trial: t, truth: newTruth(t.direct), verdict: newJudge(),
		places: make(map[netip.AddrPort]uint32), record: record,
	}
}

// traffic makes the trial's traffic until ctx ends.
func (r *running) traffic(ctx context.Context, ns *netlab.Namespace, to netip.Addr, secure bool, o options) error {
	// Nor do the trials: many handshakes at once would hold up the looks.
	rest(ctx, time.Duration(rand.New(rand.NewPCG(r.seed, 0)).Int64N(int64(max(o.lasts/startsWithin, 1)))))
	g, ctx := errgroup.WithContext(ctx)
	var ids atomic.Uint64
	ids.Store(r.number * requestsOf)
	for i := range o.clients {
		c := &client{
			namespace: ns, to: netip.AddrPortFrom(to, r.port), secure: secure, files: strings.TrimSuffix(r.server, secureSuffix) == "nginx",
			truth: r.truth, ids: func() uint64 { return ids.Add(1) }, rand: rand.New(rand.NewPCG(r.seed, uint64(i+1))),
		}
		g.Go(func() error {
			// They do not all begin in one look.
			rest(ctx, time.Duration(c.rand.IntN(500))*ms)
			if err := c.run(ctx, r.kind); err != nil {
				// The others go on: it shows as requests that failed.
				fmt.Fprintf(os.Stderr, "bench: a client gives up, %s: %v\n", r.trial, err)
			}
			return nil
		})
	}
	return g.Wait()
}

func (t trial) String() string { return t.server + ", " + t.link + ", " + t.kind.name }

// look takes in one look at the trial's connections.
func (r *running) look(from, to time.Time, all []requests.Figures) {
	at := uint32(len(r.looks))
	r.looks = append(r.looks, looked{from, to})
	for i, v := range r.verdict.look(from, all) {
		r.marks = append(r.marks, mark{at, r.place(all[i].Peer), v})
	}
	r.record.look(r.number, from, to, all)
}

// place numbers the connections.
func (r *running) place(client netip.AddrPort) uint32 {
	at, ok := r.places[client]
	if !ok {
		at = uint32(len(r.clients))
		r.places[client] = at
		r.clients = append(r.clients, client)
	}
	return at
}

// judge holds all rules against the same looks.
type judge struct{ *requests.Classifier }

// verdicts are those of one look at one connection: is it between two requests, by
// the rules, and by a reading that goes by the order of the last bytes alone.
type verdicts struct{ strict, wide, naive bool }

func newJudge() judge { return judge{requests.New()} }

func (j judge) look(at time.Time, all []requests.Figures) []verdicts {
	said := make([]verdicts, len(all))
	for i, v := range j.Look(at, all) {
		said[i] = verdicts{v.Strict == requests.Between, v.Wide == requests.Between, naive(&all[i])}
	}
	return said
}

func naive(f *requests.Figures) bool {
	return f.Established && f.DataSent > 0 && f.ReceiveQueue == 0 && f.SendQueue == 0 && f.Unsent == 0 &&
		f.Unacknowledged == 0 && f.SinceSent <= f.SinceReceived
}

// figuresOf reads a look, by the servers' ports.
func figuresOf(l sockdiag.Look, ports map[uint16]*running) map[*running][]requests.Figures {
	all := make(map[*running][]requests.Figures, len(ports))
	for i, s := range l.Sockets {
		r := ports[s.Local.Port()]
		if r == nil || s.Peer.Addr().IsLoopback() || !s.Live() {
			continue
		}
		all[r] = append(all[r], looks.Figures(s, l.Traffic[i]))
	}
	return all
}
