package conntrack

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// These tests are cases from the field, by their numbers.

// P3: a scrape of a port that is not served does not count.
func TestP3PortFilterLeavesOutTheMetricsPort(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	app := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	metrics := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, 9090))
	a := connect(t, lab.Client, app, hostPort(lab.ServiceAddr, lab.ServicePort))
	connect(t, lab.Client, metrics, hostPort(lab.PodAddr, 9090))
	w := watch(t, newReader(lab.Node), Target{
		Addresses: []netip.Addr{lab.PodAddr}, Ports: []uint16{lab.PodPort},
	})
	counts(t, w, 1, 0, 0)
	a.end(t)
	counts(t, w, 0, 0, 0)
}

// P5: a raw TCP session counts, whatever is spoken in it, or nothing at all.
func TestP5SilentTCPCounts(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	c := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 1, 0, 0)
	always(t, 2*time.Second, "a silent session is open", func() bool { return w.Counts().Open == 1 })
	c.end(t)
	counts(t, w, 0, 0, 0)
}

// P26: what the node itself opens to a probed port counts while it is open and is
// not new; what it opens through the Service, or to another port, is.
func TestP26ProbesAreNotNew(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	other := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, 9090))
	w := watch(t, newReader(lab.Node), Target{
		Addresses:  []netip.Addr{lab.PodAddr},
		ProbedFrom: []netip.Addr{lab.NodeAddr, lab.GatewayAddr}, ProbedPorts: []uint16{lab.PodPort},
	})
	probe := connect(t, lab.Node, server, hostPort(lab.PodAddr, lab.PodPort))
	counts(t, w, 1, 0, 0)
	if c := w.Counts(); c.New != 0 || !c.LastNew.IsZero() {
		t.Errorf("a probe is new: %+v", c)
	}
	if all := w.Sessions(); len(all) != 1 || !all[0].Probe {
		t.Errorf("%+v, want a probe", all)
	}
	connect(t, lab.Node, other, hostPort(lab.PodAddr, 9090))
	counts(t, w, 2, 0, 0)
	connect(t, lab.Client, server, hostPort(lab.PodAddr, lab.PodPort))
	counts(t, w, 3, 0, 0)
	if c := w.Counts(); c.New != 2 {
		t.Errorf("%d new, want the session to another port and the client's", c.New)
	}
	for _, s := range w.Sessions() {
		if want := s.Client == probe.client.LocalAddr().(*net.TCPAddr).AddrPort(); s.Probe != want {
			t.Errorf("%+v: a probe is %t, want %t", s, s.Probe, want)
		}
	}
	probe.end(t)
	counts(t, w, 2, 0, 0)
}

// P26: a probe whose answer nobody tracks, or that gets none, is no handshake of a
// client.
func TestP26ProbesAreNoHandshakes(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	must(t, lab.Pod.Drop(lab.PodPort))
	w := watch(t, newReader(lab.Node), Target{
		Addresses:  []netip.Addr{lab.PodAddr},
		ProbedFrom: []netip.Addr{lab.GatewayAddr}, ProbedPorts: []uint16{lab.PodPort},
	})
	dial := func(from *netlab.Namespace) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if c, err := from.Dial(ctx, "tcp", hostPort(lab.PodAddr, lab.PodPort)); err == nil {
			check(t, c.Close())
			t.Error("connected through a rule that drops")
		}
	}
	dial(lab.Node)
	if c := w.Counts(); c.Opening != 0 {
		t.Errorf("%+v, a probe counts as a handshake", c)
	}
	dial(lab.Client)
	if c := w.Counts(); c.Opening != 1 {
		t.Errorf("%+v, want the client's handshake", c)
	}
}

// P8: a session without a packet for longer than idle-after does not block, and
// does again after a packet. Without idle-after it blocks.
func TestP8IdleSession(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	c := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	say(t, c.client, c.server)
	r := newReader(lab.Node)
	patient := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}})
	impatient := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}, IdleAfter: 3 * time.Second})
	counts(t, impatient, 0, 1, 0)
	counts(t, patient, 1, 0, 0)
	say(t, c.server, c.client)
	counts(t, impatient, 1, 0, 0)
	counts(t, impatient, 0, 1, 0)
}

// P8: what has been idle for long before the watch is idle at once.
func TestP8IdleSinceBeforeTheWatch(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	l, err := newKernel(n.FD()).limits()
	must(t, err)
	f := inboundFlow(pod4, client4, 5000, 0)
	f.Timeout = uint32((l.tcpEstablished - time.Hour).Seconds())
	fill(t, n, func(yield func(netlab.Flow) bool) { yield(f) })
	sessions, c, err := newReader(n).Sessions(t.Context(),
		Target{Addresses: []netip.Addr{pod4}, IdleAfter: 30 * time.Minute})
	must(t, err)
	if c.Idle != 1 || c.Blocking() != 0 {
		t.Errorf("%+v, want one idle", c)
	}
	if q := sessions[0].Quiet; q < 59*time.Minute || q > time.Hour+patience {
		t.Errorf("quiet for %s, want about an hour and never more", q)
	}
}

// P9: a client that vanished without a FIN is idle after idle-after, and blocks
// without it.
func TestP9VanishedClient(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	c := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	say(t, c.client, c.server)
	// From now on nothing of the client reaches the node.
	must(t, lab.Client.Route(netip.PrefixFrom(lab.ServiceAddr, 32), netip.MustParseAddr("127.0.0.1")))
	r := newReader(lab.Node)
	w := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}, IdleAfter: 3 * time.Second})
	blocked := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}})
	_ = c.client.Close()
	counts(t, w, 0, 1, 0)
	counts(t, blocked, 1, 0, 0)
}

// P10: the pod's own connections to elsewhere are none of its sessions.
func TestP10OutboundDoesNotCount(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	database := serve(t, lab.Client, "tcp", hostPort(lab.ClientAddr, 5432))
	pool := connect(t, lab.Pod, database, hostPort(lab.ClientAddr, 5432))
	say(t, pool.client, pool.server)
	r := newReader(lab.Node)
	in := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, in, 0, 0, 0)
	out := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}, Direction: Outbound})
	counts(t, out, 1, 0, 0)
	both := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}, Direction: Both, Ports: []uint16{5432}})
	counts(t, both, 1, 0, 0)
	elsewhere := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}, Direction: Outbound, Ports: []uint16{80}})
	counts(t, elsewhere, 0, 0, 0)
	if s := out.Sessions(); len(s) != 1 || !s[0].Outbound || s[0].Server.Addr() != lab.ClientAddr {
		t.Errorf("sessions = %+v", s)
	}
	pool.end(t)
	counts(t, out, 0, 0, 0)
	counts(t, in, 0, 0, 0)
}

// P11: through the Service's address, a node port and directly: each counts once.
func TestP11ServiceNodePortAndDirect(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{NodePort: 30080})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	var conns []connection
	for i, address := range []string{
		hostPort(lab.ServiceAddr, lab.ServicePort),
		hostPort(lab.NodeAddr, 30080),
		hostPort(lab.PodAddr, lab.PodPort),
	} {
		conns = append(conns, connect(t, lab.Client, server, address))
		counts(t, w, i+1, 0, 0)
	}
	// And from the node itself, as a probe comes.
	conns = append(conns, connect(t, lab.Node, server, hostPort(lab.PodAddr, lab.PodPort)))
	counts(t, w, 4, 0, 0)
	late := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, late, 4, 0, 0)
	for _, c := range conns {
		c.end(t)
	}
	counts(t, w, 0, 0, 0)
	counts(t, late, 0, 0, 0)
}

// P12: IPv6 sessions of a dual-stack pod, and of one that has only IPv6.
func TestP12IPv6(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	if !lab.PodAddr6.IsValid() {
		t.Fatal("this kernel has no IPv6, which this test needs")
	}
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr6, lab.PodPort))
	older := connect(t, lab.Client, server, hostPort(lab.ServiceAddr6, lab.ServicePort))
	say(t, older.client, older.server)
	r := newReader(lab.Node)
	dual := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr, lab.PodAddr6}})
	only := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr6}})
	counts(t, dual, 1, 0, 0)
	counts(t, only, 1, 0, 0)
	younger := connect(t, lab.Client, server, hostPort(lab.PodAddr6, lab.PodPort))
	counts(t, dual, 2, 0, 0)
	counts(t, only, 2, 0, 0)
	older.end(t)
	younger.end(t)
	counts(t, dual, 0, 0, 0)
	counts(t, only, 0, 0, 0)
}

// P23: the client closes its side first and the server is silent for long: the
// session is open until the server has closed, packets or not.
func TestP23ClientClosesFirstAndTheServerIsSilent(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	c := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	say(t, c.client, c.server)
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}, IdleAfter: time.Second})
	must(t, c.client.CloseWrite())
	eventually(t, "the client's close is seen", func() bool {
		s := w.Sessions()
		return len(s) == 1 && s[0].ClosedFirst == ClientSide
	})
	always(t, 5*time.Second, "it is open though nothing is said", func() bool {
		c := w.Counts()
		return c.Known && c.Open == 1
	})
	say(t, c.server, c.client)
	counts(t, w, 1, 0, 0)
	must(t, c.server.Close())
	counts(t, w, 0, 0, 0)
}

// P23: the pod closes first and the client never does. There is nothing to save.
func TestP23PodClosesFirstAndTheClientNeverDoes(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	r := newReader(lab.Node)
	older := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	say(t, older.client, older.server)
	w := watch(t, r, Target{Addresses: []netip.Addr{lab.PodAddr}})
	younger := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	say(t, younger.client, younger.server)
	counts(t, w, 2, 0, 0)
	must(t, older.server.CloseWrite())
	counts(t, w, 1, 0, 0)
	must(t, younger.server.CloseWrite())
	counts(t, w, 0, 0, 0)
}

// P23: the pod closes first, but what it sent is not yet acknowledged by a client
// that does not read: that has to be delivered.
func TestP23PodClosesFirstWithDataUnread(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	c := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	must(t, c.client.SetReadBuffer(4096))
	sent := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(c.server, io.LimitReader(zeros{}, 2<<20))
		_ = c.server.Close()
		sent <- n
	}()
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 1, 0, 0)
	always(t, 2*time.Second, "undelivered data keeps it open", func() bool { return w.Counts().Open == 1 })
	got, err := io.Copy(io.Discard, c.client)
	must(t, err)
	if n := <-sent; n != got {
		t.Fatalf("got %d of %d bytes", got, n)
	}
	counts(t, w, 0, 0, 0)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// P30: an entry is flushed under a live connection, and the client talks on.
func TestP30FlushWithTheClientTalkingOn(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	c := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	say(t, c.client, c.server)
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 1, 0, 0)
	must(t, netlab.Flush(lab.Node))
	counts(t, w, 0, 0, 1)
	say(t, c.client, c.server)
	counts(t, w, 1, 0, 0)
	c.end(t)
	counts(t, w, 0, 0, 0)
}

// P30: the same with the server talking first, which turns the entry round.
func TestP30FlushWithTheServerTalkingFirst(t *testing.T) {
	t.Parallel()
	for name, ports := range map[string][]uint16{"ports named": {8080}, "any port": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab := newLab(t, netlab.LabOptions{PodPort: 8080})
			server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
			c := connect(t, lab.Client, server, hostPort(lab.PodAddr, lab.PodPort))
			say(t, c.client, c.server)
			target := Target{Addresses: []netip.Addr{lab.PodAddr}, Ports: ports}
			w := watch(t, newReader(lab.Node), target)
			counts(t, w, 1, 0, 0)
			must(t, netlab.Flush(lab.Node))
			counts(t, w, 0, 0, 1)
			say(t, c.server, c.client)
			counts(t, w, 1, 0, 0)
			if ports != nil {
				// Who comes now and knows the port finds it too, by either way.
				for _, mode := range []SnapshotMode{Filter, Stream} {
					r := NewReader(Config{NetNS: lab.Node.FD(), Snapshot: mode})
					if _, c, err := r.Sessions(t.Context(), target); err != nil || c.Open != 1 {
						t.Errorf("%s: %+v, %v; want one open", mode, c, err)
					}
				}
			}
			c.end(t)
			counts(t, w, 0, 0, 0)
		})
	}
}

// P30: a lost session is over once lost-after has passed, if that is asked for.
func TestP30LostAfter(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	fill(t, n, inbound(pod4, 3))
	r := newReader(n)
	w := watch(t, r, Target{Addresses: []netip.Addr{pod4}})
	bounded := watch(t, r, Target{Addresses: []netip.Addr{pod4}, LostAfter: 2 * time.Second})
	counts(t, w, 3, 0, 0)
	must(t, netlab.Flush(n))
	counts(t, w, 0, 0, 3)
	counts(t, bounded, 0, 0, 0)
	always(t, time.Second, "without lost-after they block", func() bool { return w.Counts().Lost == 3 })
}

// UDP has no end but quiet.
func TestUDPSessionEndsWithQuiet(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server, err := lab.Pod.ListenPacket(t.Context(), "udp", hostPort(lab.PodAddr, lab.PodPort))
	must(t, err)
	defer func() { check(t, server.Close()) }()
	client, err := lab.Client.Dial(t.Context(), "udp", hostPort(lab.ServiceAddr, lab.ServicePort))
	must(t, err)
	defer func() { check(t, client.Close()) }()
	datagram := func() {
		t.Helper()
		_, err := client.Write([]byte("ping"))
		must(t, err)
		b := make([]byte, 16)
		_, from, err := server.ReadFrom(b)
		must(t, err)
		_, err = server.WriteTo([]byte("pong"), from)
		must(t, err)
		_, err = client.Read(b)
		must(t, err)
	}
	datagram()
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 1, 0, 0)
	// Packets less than a second apart never let the remaining life move.
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for range 25 {
		<-tick.C
		datagram()
		if c := w.Counts(); c.Open != 1 {
			t.Fatalf("%+v during the exchange, want one open", c)
		}
	}
	last := time.Now()
	counts(t, w, 0, 0, 0)
	if quiet := time.Since(last); quiet < datagramFor {
		t.Errorf("over after %s of quiet, want at least %s", quiet, datagramFor)
	}
	datagram()
	counts(t, w, 1, 0, 0)
}

var _ net.PacketConn = (*net.UDPConn)(nil)
