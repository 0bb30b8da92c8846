package sockdiag

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// bothWays looks by netlink and by /proc, until both tell the same or there is no
// more patience: what is on its way moves between the two.
func bothWays(t *testing.T, n *netlab.Namespace) (diag, proc Look) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := n.Do(func() (err error) {
			if diag, err = take(ctx, dump, false, ownAddresses, 0); err != nil {
				return err
			}
			proc, err = take(ctx, dumpProc, false, ownFromProc, 0)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []*Look{&diag, &proc} {
			slices.SortFunc(l.Sockets, func(a, b Socket) int {
				return cmp.Compare(a.Peer.String()+a.Local.String(), b.Peer.String()+b.Local.String())
			})
			l.Traffic, l.At = nil, time.Time{}
		}
		diff := gocmp.Diff(diag, proc, byValue)
		if diff == "" {
			return diag, proc
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("(-sock_diag +/proc):\n%s", diff)
		}
	}
}

// In every state that counts, both ways tell the same of IPv4 and IPv6: addresses,
// ports, queues and states.
func TestProcTellsWhatNetlinkTells(t *testing.T) {
	t.Parallel()
	lab := newLab(t, netlab.LabOptions{Untracked: true})
	l := listen(t, lab.Pod, ":8080")
	four := netip.AddrPortFrom(lab.PodAddr, 8080)

	connect(t, lab.Client, l, four)
	connect(t, lab.Client, l, netip.AddrPortFrom(lab.PodAddr6, 8080))
	connect(t, lab.Pod, l, netip.MustParseAddrPort("127.0.0.1:8080"))
	unread, _ := connect(t, lab.Client, l, four)
	if _, err := unread.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	half, _ := connect(t, lab.Client, l, four)
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_, sending := connect(t, lab.Client, l, four)
	stuff(t, sending)
	_, closed := connect(t, lab.Client, l, four)
	stuff(t, closed)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	both, last := connect(t, lab.Client, l, four)
	if err := both.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	stuff(t, last)
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}

	got, _ := bothWays(t, lab.Pod)
	var states []string
	for _, s := range got.Counted(Scope{}) {
		states = append(states, s.State.String())
	}
	slices.Sort(states)
	want := []string{"CLOSE_WAIT", "ESTABLISHED", "ESTABLISHED", "ESTABLISHED", "ESTABLISHED", "FIN_WAIT1", "LAST_ACK"}
	if diff := gocmp.Diff(want, states); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
}
