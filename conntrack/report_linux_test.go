package conntrack

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

func (c connection) socket() Socket {
	return Socket{Local: tcpAddr(c.server.LocalAddr()), Peer: tcpAddr(c.server.RemoteAddr())}
}

func tcpAddr(a net.Addr) netip.AddrPort { return a.(*net.TCPAddr).AddrPort() }

// Nothing is known before the server's sockets have been reported, where they are
// to be.
func TestReportIsWaitedFor(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	w, err := newReader(lab.Node).Watch(t.Context(), Target{Addresses: []netip.Addr{lab.PodAddr}, SocketsReported: true})
	must(t, err)
	defer func() { check(t, w.Close()) }()
	always(t, time.Second, "without a report nothing is known", func() bool { return !w.Counts().Known })
	w.Report(SocketReport{At: time.Now()})
	known(t, w)
}

// P14: a socket that conntrack does not know in two reports a second apart counts.
func TestBlindSocketCounts(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	must(t, lab.Node.NoTrack(lab.PodAddr))
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	c := connect(t, lab.Client, server, hostPort(lab.PodAddr, lab.PodPort))
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	report := func(sockets ...Socket) { w.Report(SocketReport{At: time.Now(), Sockets: sockets}) }
	report(c.socket())
	if got := w.Counts(); got.Open != 0 || !got.ReportsPending || got.Source != FromConntrack {
		t.Errorf("after one report: %+v, want pending", got)
	}
	eventually(t, "two reports make it blind", func() bool {
		report(c.socket())
		return w.Counts().Open == 1
	})
	if got := w.Counts(); got.Source != FromSockets || got.ReportsPending {
		t.Errorf("%+v, want source sockets", got)
	}
	if s := w.Sessions(); len(s) != 1 || s[0].Source != FromSockets || s[0].Client != c.socket().Peer {
		t.Errorf("sessions = %+v", s)
	}
	w.Report(SocketReport{At: time.Now(), Truncated: true})
	if got := w.Counts(); got.Open != 1 {
		t.Errorf("a truncated report ended it: %+v", got)
	}
	report()
	counts(t, w, 0, 0, 0)
}

// Only the named ports of sockets count that conntrack does not know.
func TestBlindPorts(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	must(t, n.Track())
	w, err := newReader(n).Watch(t.Context(), Target{Addresses: []netip.Addr{pod4}, SocketsReported: true})
	must(t, err)
	defer func() { check(t, w.Close()) }()
	ssh := Socket{Local: netip.AddrPortFrom(pod4, 22), Peer: netip.AddrPortFrom(client4, 4000)}
	app := Socket{Local: netip.AddrPortFrom(pod4, 8080), Peer: netip.AddrPortFrom(client4, 4001)}
	eventually(t, "the socket of the port is found blind", func() bool {
		w.Report(SocketReport{At: time.Now(), Sockets: []Socket{ssh, app}, BlindPorts: []uint16{8080}})
		return w.Counts().Source == FromSockets
	})
	counts(t, w, 1, 0, 0)
}

// A socket whose entry comes to be known after the report is not blind, without
// another report.
func TestReportBeforeItsEntry(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	must(t, n.Track())
	app := inboundFlow(pod4, client4, 5000, 0)
	w := watch(t, newReader(n), Target{Addresses: []netip.Addr{pod4}})
	w.Report(SocketReport{At: time.Now(), Sockets: []Socket{{Local: app.Orig.Dst, Peer: app.Orig.Src}}})
	if c := w.Counts(); !c.ReportsPending || c.Open != 0 {
		t.Errorf("%+v, want a socket that is possibly blind", c)
	}
	fill(t, n, func(yield func(netlab.Flow) bool) { yield(app) })
	eventually(t, "its entry explains it", func() bool {
		c := w.Counts()
		return c.Open == 1 && !c.ReportsPending && c.Source == FromConntrack
	})
}

// When nobody reports any more, a session whose entry is over is over, and one that
// only sockets have shown stays.
func TestUnreported(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	must(t, n.Track())
	app := inboundFlow(pod4, client4, 5000, 0)
	fill(t, n, func(yield func(netlab.Flow) bool) { yield(app) })
	w := watch(t, newReader(n), Target{Addresses: []netip.Addr{pod4}})
	sockets := []Socket{
		{Local: app.Orig.Dst, Peer: app.Orig.Src},
		{Local: app.Orig.Dst, Peer: netip.AddrPortFrom(client4, 6000)},
	}
	eventually(t, "one of the sockets is blind", func() bool {
		w.Report(SocketReport{At: time.Now(), Sockets: sockets})
		return w.Counts().Open == 2
	})
	must(t, netlab.Delete(n, app))
	over := app
	over.TCPState = netlab.TCPTimeWait
	fill(t, n, func(yield func(netlab.Flow) bool) { yield(over) })
	w.Report(SocketReport{At: time.Now(), Sockets: sockets})
	counts(t, w, 2, 0, 0)
	w.Unreported()
	counts(t, w, 1, 0, 0)
}

// P4: what comes to the reporter's own ports is no session, whether conntrack
// knows of it or not.
func TestP4OwnPortsDoNotCount(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	app, hook := inboundFlow(pod4, client4, 5000, 0), inboundFlow(pod4, client4, 6000, 0)
	hook.Orig.Dst = netip.AddrPortFrom(pod4, 10942)
	fill(t, n, func(yield func(netlab.Flow) bool) { _ = yield(app) && yield(hook) })
	w := watch(t, newReader(n), Target{Addresses: []netip.Addr{pod4}})
	counts(t, w, 2, 0, 0)
	unknown := Socket{Local: netip.AddrPortFrom(pod4, 10942), Peer: netip.AddrPortFrom(client4, 7000)}
	report := SocketReport{Own: []uint16{10942}, Sockets: []Socket{
		{Local: app.Orig.Dst, Peer: app.Orig.Src}, {Local: hook.Orig.Dst, Peer: hook.Orig.Src}, unknown,
	}}
	report.At = time.Now()
	w.Report(report)
	if c := w.Counts(); c.Open != 1 || c.ReportsPending || c.Source != FromConntrack {
		t.Errorf("%+v, want the application's session alone", c)
	}
	// It holds for reports of others too.
	report.Own, report.At = nil, time.Now()
	w.Report(report)
	if c := w.Counts(); c.Open != 1 || c.ReportsPending {
		t.Errorf("%+v after a report of another one, want the application's session alone", c)
	}
}

// P30: a lost session that no socket has is over; one that has a socket is lost.
func TestP30SocketsDecideOnLostSessions(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	a := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	b := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 2, 0, 0)
	before := time.Now()
	must(t, netlab.Flush(lab.Node))
	counts(t, w, 0, 0, 2)
	w.Report(SocketReport{At: before})
	if c := w.Counts(); c.Lost != 2 {
		t.Errorf("%+v: a look from before the loss proves nothing", c)
	}
	w.Report(SocketReport{At: time.Now(), Truncated: true, Sockets: []Socket{a.socket()}})
	if c := w.Counts(); c.Lost != 2 {
		t.Errorf("%+v: a truncated look proves nothing", c)
	}
	w.Report(SocketReport{At: time.Now(), Sockets: []Socket{a.socket()}})
	if c := w.Counts(); c.Lost != 2 {
		t.Errorf("%+v: where nothing listens and nothing had a socket, no socket proves nothing", c)
	}
	listening := []uint16{lab.PodPort}
	w.Report(SocketReport{At: time.Now(), Sockets: []Socket{a.socket()}, Listening: listening})
	counts(t, w, 0, 0, 1)
	w.Report(SocketReport{At: time.Now()}) // the server has stopped to listen, but a had a socket
	counts(t, w, 0, 0, 0)
	_ = b
}

// The server of a session may be where the look does not reach, such as in a
// virtual machine behind the pod's address: that the look has no socket of it then
// ends nothing, however quiet it is. Where a socket listens for it, two looks a
// second apart end what is left of a connection that nobody has any more.
func TestNoSocketIsNoProofWhereNothingListens(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	fill(t, n, inbound(pod4, 1))
	w := watch(t, newReader(n), Target{Addresses: []netip.Addr{pod4}})
	counts(t, w, 1, 0, 0)
	report := func(listening ...uint16) { w.Report(SocketReport{At: time.Now(), Listening: listening}) }
	always(t, 2*blindAfter, "the session is open", func() bool {
		report(9)
		return w.Counts().Open == 1
	})
	port := w.Sessions()[0].Server.Port()
	eventually(t, "it is over", func() bool {
		report(port)
		c := w.Counts()
		return c.Known && c.Blocking() == 0
	})
}

// P32: the client's socket is the proxy's, on another local port; what joins it to
// its entry is the client's end. A socket of a port that is not served does not
// count.
func TestReportJoinsByPeer(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	app := inboundFlow(pod4, client4, 5000, 0)
	scrape := inboundFlow(pod4, client4, 6000, 0)
	scrape.Orig.Dst = netip.AddrPortFrom(pod4, 9090)
	fill(t, n, func(yield func(netlab.Flow) bool) { _ = yield(app) && yield(scrape) })
	w := watch(t, newReader(n), Target{Addresses: []netip.Addr{pod4}, Ports: []uint16{8080}})
	counts(t, w, 1, 0, 0)
	proxied := Socket{Local: netip.AddrPortFrom(pod4, 15006), Peer: app.Orig.Src}
	scraped := Socket{Local: netip.AddrPortFrom(pod4, 15006), Peer: scrape.Orig.Src}
	for range 2 {
		w.Report(SocketReport{At: time.Now(), Sockets: []Socket{proxied, scraped}})
	}
	if c := w.Counts(); c.Open != 1 || c.ReportsPending || c.Source != FromConntrack {
		t.Errorf("%+v, want the one session, and no socket unknown", c)
	}
	// Its entry is over, its socket is not.
	must(t, netlab.Delete(n, app))
	counts(t, w, 0, 0, 1)
	over := app
	over.TCPState = netlab.TCPTimeWait
	fill(t, n, func(yield func(netlab.Flow) bool) { yield(over) })
	w.Report(SocketReport{At: time.Now(), Sockets: []Socket{proxied, scraped}})
	eventually(t, "the socket keeps it", func() bool {
		c := w.Counts()
		return c.Known && c.Blocking() == 1
	})
	w.Report(SocketReport{At: time.Now(), Sockets: []Socket{scraped}})
	counts(t, w, 0, 0, 0)
}

// P30: after a flush a silent client's last packets make an entry that the server
// never answers. That is no sign of life: it stays lost, and no socket ends it.
func TestP30EchoOfAnEndedConnection(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	c := connect(t, lab.Client, server, hostPort(lab.PodAddr, lab.PodPort))
	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 1, 0, 0)
	must(t, netlab.Flush(lab.Node))
	counts(t, w, 0, 0, 1)
	c.end(t)
	eventually(t, "the last packets are tracked as an unanswered flow", func() bool {
		s := w.Sessions()
		return len(s) == 1 && s[0].State == Lost && s[0].Kernel == "ESTABLISHED"
	})
	always(t, time.Second, "it is lost, not open", func() bool { return w.Counts().Lost == 1 })
	w.Report(SocketReport{At: time.Now(), Listening: []uint16{lab.PodPort}})
	counts(t, w, 0, 0, 0)
}

// P26: a kubelet's look at the pod is no new session where only sockets tell, either.
func TestP26BlindProbeIsNotNew(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{Untracked: true})
	w, err := newReader(lab.Node).Watch(t.Context(), Target{
		Addresses: []netip.Addr{lab.PodAddr}, Ports: []uint16{8080}, SocketsReported: true,
		ProbedPorts: []uint16{8080}, ProbedFrom: []netip.Addr{lab.GatewayAddr},
	})
	must(t, err)
	defer func() { check(t, w.Close()) }()
	began := time.Now()
	w.Report(SocketReport{At: began, Listening: []uint16{8080}})
	known(t, w)
	probe := Socket{Local: netip.AddrPortFrom(lab.PodAddr, 8080), Peer: netip.AddrPortFrom(lab.GatewayAddr, 40000)}
	client := Socket{Local: probe.Local, Peer: netip.AddrPortFrom(lab.ClientAddr, 40000)}
	w.Report(SocketReport{At: began.Add(time.Millisecond), Sockets: []Socket{probe}, Listening: []uint16{8080}})
	if c := w.Counts(); c.New != 0 || !c.LastNew.IsZero() || c.Open != 1 {
		t.Errorf("%+v with a probe, want one that is open and none that is new", c)
	}
	w.Report(SocketReport{At: began.Add(2 * time.Millisecond), Sockets: []Socket{probe, client}, Listening: []uint16{8080}})
	if c := w.Counts(); c.New != 1 || c.LastNew.IsZero() {
		t.Errorf("%+v with a client, want it to be new", c)
	}
}

// New sockets without end in reports that do not tell all make nothing grow, end nothing,
// and are no zero either, until a report tells all again.
func TestBlindSocketsAreBounded(t *testing.T) {
	t.Parallel()
	n := newNamespace(t)
	must(t, n.Track())
	w, err := newReader(n).Watch(t.Context(), Target{Addresses: []netip.Addr{pod4}, SocketsReported: true})
	must(t, err)
	defer func() { check(t, w.Close()) }()
	app := Socket{Local: netip.AddrPortFrom(pod4, 8080), Peer: netip.AddrPortFrom(client4, 1)}
	at := time.Now()
	report := func(truncated bool, sockets ...Socket) {
		at = at.Add(blindAfter / 8)
		w.Report(SocketReport{At: at, Truncated: truncated, Sockets: sockets})
	}
	report(false, app)
	peer := client4
	for range 5 {
		many := make([]Socket, maxBlind/4)
		for i := range many {
			peer = peer.Next()
			many[i] = Socket{Local: app.Local, Peer: netip.AddrPortFrom(peer, 5000)}
		}
		report(true, many...)
	}
	if got := len(w.report.blind); got != maxBlind {
		t.Errorf("%d sockets are remembered, want %d", got, maxBlind)
	}
	if _, known := w.report.blind[app]; !known {
		t.Error("one that was there before is forgotten")
	}
	if c := w.Counts(); !c.ReportsPending {
		t.Errorf("%+v, want a zero that is not confirmed", c)
	}
	clear(w.report.blind)
	if c := w.Counts(); !c.ReportsPending {
		t.Errorf("%+v when those for which there was room have entries, want the others to hold", c)
	}
	report(false, app)
	eventually(t, "what is there is told apart again", func() bool {
		report(false, app)
		return w.Counts().Open == 1
	})
	report(false)
	if c := w.Counts(); c.ReportsPending || c.Open > 0 || len(w.report.blind) > 0 {
		t.Errorf("%+v when a report tells all, want none", c)
	}
}
