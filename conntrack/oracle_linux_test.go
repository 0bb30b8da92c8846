//go:build linux

package conntrack

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	tmconntrack "github.com/ti-mo/conntrack"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// TestStreamAgreesWithAnotherReader reads one table with this package and with
// ti-mo/conntrack.
func TestStreamAgreesWithAnotherReader(t *testing.T) {
	lab := newLab(t, netlab.LabOptions{NodePort: 30080})
	pods := []netip.Addr{lab.PodAddr}
	services := []string{
		hostPort(lab.ServiceAddr, lab.ServicePort), hostPort(lab.NodeAddr, 30080), hostPort(lab.PodAddr, lab.PodPort),
	}
	server := serve(t, lab.Pod, "tcp4", hostPort(lab.PodAddr, lab.PodPort))
	for _, s := range services {
		c := connect(t, lab.Client, server, s)
		say(t, c.client, c.server)
	}
	closed := connect(t, lab.Client, server, services[0])
	closed.end(t)
	half := connect(t, lab.Client, server, services[0])
	must(t, half.client.CloseWrite())
	if lab.PodAddr6.IsValid() {
		pods = append(pods, lab.PodAddr6)
		server6 := serve(t, lab.Pod, "tcp6", hostPort(lab.PodAddr6, lab.PodPort))
		c := connect(t, lab.Client, server6, hostPort(lab.ServiceAddr6, lab.ServicePort))
		say(t, c.client, c.server)
	}
	ping(t, lab)
	for _, a := range pods {
		udp, err := lab.Client.Dial(t.Context(), "udp", hostPort(a, lab.PodPort))
		must(t, err)
		t.Cleanup(func() { check(t, udp.Close()) })
		_, err = udp.Write([]byte("hello"))
		must(t, err)
		fill(t, lab.Node, inbound(a.Next(), 1500))
		fill(t, lab.Node, slices.Values(specimens(a)))
	}
	createTupleZone(t, lab.Node, lab.PodAddr)

	read := func() (ours, theirs map[flowKey]entry) {
		ours, theirs = make(map[flowKey]entry), make(map[flowKey]entry)
		must(t, newKernel(lab.Node.FD()).dump(t.Context(), selection{}, func(m message) error {
			var e entry
			_, err := e.decode(m.payload, nil)
			ours[e.key()] = e
			return err
		}))
		c, err := tmconntrack.Dial(&netlink.Config{NetNS: lab.Node.FD()})
		must(t, err)
		flows, err := c.Dump(nil)
		must(t, err)
		must(t, c.Close())
		for _, f := range flows {
			e := entryOf(&f)
			theirs[e.key()] = e
		}
		return ours, theirs
	}
	// The half-closed connection may be on its way to its last state between the
	// two, and a second may pass.
	var d string
	defer func() {
		if t.Failed() {
			t.Log(d)
		}
	}()
	eventually(t, "both read the same", func() bool {
		ours, theirs := read()
		if want := 1500*len(pods) + 10; len(ours) < want {
			t.Errorf("%d entries, want %d at least", len(ours), want)
		}
		d = cmp.Diff(theirs, ours, inside, cmp.FilterPath(func(p cmp.Path) bool {
			return p.Last().String() == ".hasState" // they do not tell
		}, cmp.Ignore()))
		return d == ""
	})
}

// specimens are entries that the lab's traffic does not make.
func specimens(server netip.Addr) []netlab.Flow {
	client := client4
	if server.Is6() {
		client = client6
	}
	var flows []netlab.Flow
	for i, f := range []netlab.Flow{
		{Protocol: uint8(SCTP)},
		{Protocol: uint8(SCTP), SCTPState: sctpShutdownSent},
		{Protocol: uint8(UDP), Timeout: 20},
		{Protocol: uint8(UDP), Zone: 65535},
		{Protocol: uint8(TCP), Zone: 3},
		{Protocol: uint8(TCP), TCPState: tcpCloseWait, TCPFlags: [2]uint8{0x07, 0x13}, Timeout: 3600},
	} {
		f.Orig = netlab.Tuple{Src: netip.AddrPortFrom(client, uint16(700+i)), Dst: netip.AddrPortFrom(server, 8080)}
		flows = append(flows, f)
	}
	return flows
}

// createTupleZone makes an entry whose original direction alone is in zone 9.
func createTupleZone(t *testing.T, n *netlab.Namespace, server netip.Addr) flowKey {
	t.Helper()
	c, err := tmconntrack.Dial(&netlink.Config{NetNS: n.FD()})
	must(t, err)
	f := tmconntrack.NewFlow(uint8(TCP), 0xe, client4, server, 699, 8080, 3600, 0)
	f.TupleOrig.Zone = 9
	f.ProtoInfo.TCP = &tmconntrack.ProtoInfoTCP{State: tcpEstablished}
	must(t, c.Create(f))
	must(t, c.Close())
	return flowKey{proto: TCP, orig: tuple{
		src: netip.AddrPortFrom(client4, 699), dst: netip.AddrPortFrom(server, 8080), zone: 9,
	}}
}

// ping sends the pod one echo request from the client.
func ping(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	p, err := lab.Client.ListenPacket(t.Context(), "ip4:icmp", "0.0.0.0")
	must(t, err)
	_, err = p.WriteTo([]byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1}, &net.IPAddr{IP: lab.PodAddr.AsSlice()})
	must(t, err)
	must(t, p.Close())
}
