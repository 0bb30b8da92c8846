package conntrack

import (
	"context"
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/ti-mo/netfilter"
	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// These tests hold the facts about the kernel that this package relies on, or
// works around, against the kernel that it runs on.

var (
	pod4    = netip.MustParseAddr("10.99.0.2")
	other4  = netip.MustParseAddr("10.99.0.3")
	pod6    = netip.MustParseAddr("fd99::2")
	other6  = netip.MustParseAddr("fd99::3")
	client4 = netip.MustParseAddr("10.98.0.1")
	client6 = netip.MustParseAddr("fd98::1")
)

// inbound yields n established TCP flows from a client to a server's port 8080.
func inbound(server netip.Addr, n int) iter.Seq[netlab.Flow] {
	client := client4
	if server.Is6() {
		client = client6
	}
	return func(yield func(netlab.Flow) bool) {
		for i := range n {
			if !yield(inboundFlow(server, client, uint16(1024+i%60000), i/60000)) {
				return
			}
		}
	}
}

func inboundFlow(server, client netip.Addr, port uint16, extra int) netlab.Flow {
	for range extra {
		client = client.Next()
	}
	return netlab.Flow{
		Protocol: uint8(TCP),
		Orig: netlab.Tuple{
			Src: netip.AddrPortFrom(client, port),
			Dst: netip.AddrPortFrom(server, 8080),
		},
	}
}

func fill(t *testing.T, n *netlab.Namespace, flows iter.Seq[netlab.Flow]) {
	t.Helper()
	must(t, netlab.Fill(n, flows))
}

func newNamespace(t *testing.T) *netlab.Namespace {
	t.Helper()
	n, err := netlab.New()
	must(t, err)
	t.Cleanup(func() { check(t, n.Close()) })
	return n
}

// dumped returns all flows that the kernel tells for a request.
func dumped(t *testing.T, n *netlab.Namespace, m netlink.Message) []entry {
	t.Helper()
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: n.FD()})
	must(t, err)
	defer func() { check(t, c.Close()) }()
	_, err = c.Send(m)
	must(t, err)
	replies, err := c.Receive()
	must(t, err)
	entries := make([]entry, len(replies))
	for i, reply := range replies {
		_, err := entries[i].decode(reply.Data, nil)
		must(t, err)
	}
	return entries
}

// Fact 1: the kernel's filter on an IPv6 address is wrong, in one of two ways:
// some kernels return exactly the others. The reader never uses it, and finds
// IPv6 sessions all the same.
func TestFact1IPv6FilterIsNotUsable(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	fill(t, n, inbound(pod6, 5))
	fill(t, n, inbound(other6, 7))

	m, err := netfilter.MarshalNetlink(netfilter.Header{
		SubsystemID: netfilter.NFSubsysCTNetlink,
		MessageType: netfilter.MessageType(msgGet & 0xff),
		Flags:       netlink.Request | netlink.Dump,
		Family:      netfilter.ProtoIPv6,
	}, []netfilter.Attribute{
		{Type: ctaTupleReply, Nested: true, Children: []netfilter.Attribute{
			{Type: ctaTupleIP, Nested: true, Children: []netfilter.Attribute{
				{Type: ctaIPv6Src, Data: pod6.AsSlice()},
			}},
		}},
		{Type: ctaFilter, Nested: true, Children: []netfilter.Attribute{
			{Type: ctaFilterReplyFlags, Data: binary.NativeEndian.AppendUint32(nil, filterIPSrc)},
		}},
	})
	must(t, err)
	ours := 0
	for _, e := range dumped(t, n, m) {
		if e.reply.src.Addr() == pod6 {
			ours++
		}
	}
	t.Logf("the kernel's own IPv6 filter found %d of 5", ours)

	for _, mode := range []SnapshotMode{Auto, Filter, Stream} {
		r := NewReader(Config{NetNS: n.FD(), Snapshot: mode})
		_, c, err := r.Sessions(t.Context(), Target{Addresses: []netip.Addr{pod6}})
		must(t, err)
		if c.Open != 5 || !c.Known {
			t.Errorf("%s: %+v, want 5 open", mode, c)
		}
	}
}

// Fact 2: a flow that was made while the kernel saw no need for events never emits
// one. With nf_conntrack_events=2 that is every flow that is older than the first
// listener. Asking again finds its end all the same.
func TestFact2OlderFlowsEmitNoEvents(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	// Whether there is a listener is one flag for the whole machine, and other
	// tests may listen: switched off, it is certain that the flow has no events.
	must(t, lab.Node.Sysctl("net/netfilter/nf_conntrack_events", "0"))
	older := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	say(t, older.client, older.server)
	must(t, lab.Node.Sysctl("net/netfilter/nf_conntrack_events", "2"))

	filter, err := eventFilter([]netip.Addr{lab.PodAddr})
	must(t, err)
	l, err := newKernel(lab.Node.FD()).listen(filter)
	must(t, err)
	defer func() { check(t, l.close()) }()
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 1, 0, 0)
	older.end(t)
	counts(t, w, 0, 0, 0)

	// A younger flow, made after the end of the older one, emits its events behind
	// any that the older one could have emitted.
	younger := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	port := younger.client.LocalAddr().(interface{ AddrPort() netip.AddrPort }).AddrPort()
	var e entry
	for first := true; first; {
		must(t, l.receive(func(m message) error {
			if !first {
				return nil
			}
			first = false
			kind, err := decodeEvent(m, &e)
			if err != nil {
				return err
			}
			if kind != eventNew || e.orig.src != port {
				t.Errorf("the first event is of %v (kind %d), want the new flow of %v", e.orig.src, kind, port)
			}
			return nil
		}))
	}
}

// Fact 3: an exact question does not walk the table, and a zone is part of it.
func TestFact3ExactQuestionCarriesTheZone(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	f := inboundFlow(pod4, client4, 5000, 0)
	f.Zone = 7
	fill(t, n, slices.Values([]netlab.Flow{f}))
	a, err := newKernel(n.FD()).asker()
	must(t, err)
	defer func() { check(t, a.close()) }()
	key := flowKey{proto: TCP, zone: 7, orig: tuple{src: f.Orig.Src, dst: f.Orig.Dst}}
	elsewhere := key
	elsewhere.zone = 0
	found := map[int]bool{}
	must(t, a.ask([]flowKey{key, elsewhere}, func(i int, e *entry) { found[i] = e != nil }))
	if !found[0] || found[1] {
		t.Errorf("found in its zone: %v, in another: %v", found[0], found[1])
	}
}

// Fact 6: one flow that is tracked in two zones is two entries and one session,
// and entries are told apart by their tuple, not by the kernel's id.
func TestFact6OneFlowInTwoZonesIsOneSession(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	a := inboundFlow(pod4, client4, 5000, 0)
	b := a
	b.Zone = 9
	fill(t, n, slices.Values([]netlab.Flow{a, b}))
	r := newReader(n)
	sessions, c, err := r.Sessions(t.Context(), Target{Addresses: []netip.Addr{pod4}})
	must(t, err)
	if c.Open != 1 || len(sessions) != 1 || !slices.Equal(sessions[0].Zones, []uint16{9}) {
		t.Fatalf("%+v %+v, want one session with zone 9", c, sessions)
	}
	w := watch(t, r, Target{Addresses: []netip.Addr{pod4}})
	counts(t, w, 1, 0, 0)
	must(t, netlab.Delete(n, a))
	always(t, 2*time.Second, "the flow lives in its other zone", func() bool { return w.Counts().Open == 1 })
	must(t, netlab.Delete(n, b))
	counts(t, w, 0, 0, 1)
}

// Fact 9: a vanished entry is not an ended session. The server that speaks first
// afterwards makes a reversed entry, which is the same session.
func TestFact9VanishedEntryIsLostUntilItIsSeenReversed(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	must(t, lab.Node.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_established", "2"))
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	// Directly, so that the reversed entry needs no translation to be let through.
	c := connect(t, lab.Client, server, hostPort(lab.PodAddr, lab.PodPort))
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	say(t, c.client, c.server)
	counts(t, w, 0, 0, 1) // nobody spoke for two seconds
	must(t, lab.Node.Sysctl("net/netfilter/nf_conntrack_tcp_timeout_established", "86400"))
	say(t, c.server, c.client)
	counts(t, w, 1, 0, 0)
	if s := w.Sessions(); len(s) != 1 || s[0].Server.Addr() != lab.PodAddr || s[0].Outbound {
		t.Errorf("sessions = %+v, want the pod as the server of one", s)
	}
	c.end(t)
	counts(t, w, 0, 0, 0)
}

// Facts 10 and 11 need no listener to be wrong: a snapshot must see what was
// there before the first listener came.
func TestFact11SnapshotSeesFlowsFromBeforeTheJoin(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	fill(t, n, inbound(pod4, 100))
	w := watch(t, newReader(n), Target{Addresses: []netip.Addr{pod4}})
	counts(t, w, 100, 0, 0)
	if c := w.Counts(); c.New != 0 {
		t.Errorf("new = %d, want none: they are older than the watch", c.New)
	}
}

// Nothing is kept while nobody asks.
func TestNothingRunsWhileNobodyWatches(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	fill(t, n, inbound(pod4, 10))
	r := newReader(n)
	for range 3 {
		w, err := r.Watch(t.Context(), Target{Addresses: []netip.Addr{pod4}})
		must(t, err)
		known(t, w)
		must(t, w.Close())
		must(t, w.Close())
		if r.engine != nil || len(r.hosts) != 0 {
			t.Fatal("the reader keeps something after the last watch was closed")
		}
		if c := w.Counts(); c.Known {
			t.Errorf("a closed watch knows %+v", c)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.Sessions(ctx, Target{Addresses: []netip.Addr{pod4}}); err == nil {
		t.Error("a snapshot with an ended context has no error")
	}
}
