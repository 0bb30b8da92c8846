package conntrack

import (
	"net/netip"
	"testing"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

func TestWatchSeesSessionsOlderAndYoungerEnd(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{})
	server := serve(t, lab.Pod, "tcp", hostPort(lab.PodAddr, lab.PodPort))
	older := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	say(t, older.client, older.server)

	w := watch(t, newReader(lab.Node), Target{Addresses: []netip.Addr{lab.PodAddr}})
	counts(t, w, 1, 0, 0)
	younger := connect(t, lab.Client, server, hostPort(lab.ServiceAddr, lab.ServicePort))
	say(t, younger.server, younger.client)
	counts(t, w, 2, 0, 0)
	if c := w.Counts(); c.New != 1 || c.Peak != 2 {
		t.Errorf("counts = %+v, want new 1, peak 2", c)
	}
	older.end(t)
	counts(t, w, 1, 0, 0)
	younger.end(t)
	counts(t, w, 0, 0, 0)
}
