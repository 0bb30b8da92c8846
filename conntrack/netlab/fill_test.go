//go:build linux

package netlab

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// readTable reads the table of the calling thread's namespace as text.
func readTable() ([]byte, error) { return os.ReadFile("/proc/thread-self/net/nf_conntrack") }

func flow(proto uint8, client, server string) Flow {
	return Flow{Protocol: proto, Orig: Tuple{netip.MustParseAddrPort(client), netip.MustParseAddrPort(server)}}
}

func TestFill(t *testing.T) {
	n := newNamespace(t)
	plain := flow(unix.IPPROTO_TCP, "192.0.2.1:1000", "10.244.1.7:8080")
	translated := flow(unix.IPPROTO_TCP, "192.0.2.1:1001", "10.96.0.10:80")
	translated.Reply = Tuple{netip.MustParseAddrPort("10.244.1.7:8080"), translated.Orig.Src}
	translated.TCPState, translated.Timeout, translated.Zone = TCPCloseWait, 60, 9
	v6 := flow(unix.IPPROTO_TCP, "[fd00:10::20]:1002", "[fd00:244:1::7]:8080")
	v6.TCPState = TCPTimeWait
	udp := flow(unix.IPPROTO_UDP, "192.0.2.1:1003", "10.244.1.7:53")
	unreplied := flow(unix.IPPROTO_UDP, "192.0.2.1:1004", "10.244.1.7:53")
	unreplied.Status = StatusUnreplied
	sctp := flow(unix.IPPROTO_SCTP, "192.0.2.1:1005", "10.244.1.7:3868")
	shutdown := flow(unix.IPPROTO_SCTP, "192.0.2.1:1006", "10.244.1.7:3868")
	shutdown.SCTPState = 5
	if err := Fill(n, slices.Values([]Flow{plain, translated, v6, udp, unreplied, sctp, shutdown})); err != nil {
		t.Fatal(err)
	}
	var table string
	if err := n.Do(func() error { b, err := readTable(); table = string(b); return err }); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{
		{"tcp", "ESTABLISHED", "src=192.0.2.1", "sport=1000", "dport=8080", "[ASSURED]", "zone=0"},
		{"tcp", "CLOSE_WAIT", "sport=1001", "dst=10.96.0.10", "src=10.244.1.7", "sport=8080", "zone=9"},
		{"tcp", "TIME_WAIT", "sport=1002", "src=fd00:0010:0000:0000:0000:0000:0000:0020", "zone=0"},
		{"udp", "sport=1003", "[ASSURED]"},
		{"udp", "sport=1004", "[UNREPLIED]"},
		{"sctp", "ESTABLISHED", "sport=1005"},
		{"sctp", "SHUTDOWN_SENT", "sport=1006"},
	} {
		found := false
		for line := range strings.Lines(table) {
			fields := strings.Fields(line)
			found = found || !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(fields, w) })
		}
		if !found {
			t.Errorf("no entry with all of %v", want)
		}
	}
	if t.Failed() {
		t.Log("\n" + table)
	}
	if got := len(strings.Split(strings.TrimSpace(table), "\n")); got != 7 {
		t.Errorf("%d entries, want 7", got)
	}
	if err := Fill(n, slices.Values([]Flow{udp})); !errors.Is(err, unix.EEXIST) {
		t.Errorf("fill an entry twice: %v", err)
	}
	if err := Delete(n, translated); err != nil {
		t.Error(err)
	}
	if err := Delete(n, translated); !errors.Is(err, unix.ENOENT) {
		t.Errorf("delete an entry twice: %v", err)
	}
	if got := mustSysctl(t, n, "net/netfilter/nf_conntrack_count"); got != "6" {
		t.Errorf("%s entries after a delete, want 6", got)
	}
	if err := Flush(n); err != nil {
		t.Error(err)
	}
	if got := mustSysctl(t, n, "net/netfilter/nf_conntrack_count"); got != "0" {
		t.Errorf("%s entries after a flush, want 0", got)
	}
}

// More than fits into one batch, and one refused entry in the middle.
func TestFillMany(t *testing.T) {
	n := newNamespace(t)
	const many = 5000
	flows := func(yield func(Flow) bool) {
		for i := range many {
			f := flow(unix.IPPROTO_TCP, "192.0.2.1:1000", "10.244.1.7:8080")
			f.Orig.Src = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 1000)
			if !yield(f) {
				return
			}
		}
	}
	if err := Fill(n, flows); err != nil {
		t.Fatal(err)
	}
	if got := mustSysctl(t, n, "net/netfilter/nf_conntrack_count"); got != "5000" {
		t.Errorf("%s entries, want %d", got, many)
	}
	if err := Fill(n, flows); !errors.Is(err, unix.EEXIST) {
		t.Errorf("fill entries twice: %v", err)
	}
	mixed := flow(unix.IPPROTO_TCP, "192.0.2.1:1", "[fd00::1]:1")
	if err := Fill(n, slices.Values([]Flow{mixed})); err == nil || !strings.Contains(err.Error(), "one family") {
		t.Errorf("fill an entry of two families: %v", err)
	}
}

func TestFlushKeepsTracking(t *testing.T) {
	l := newLab(t, LabOptions{})
	serveName(t, l.Pod, ":8080")
	ask(t, l.Client, netip.AddrPortFrom(l.ServiceAddr, 80))
	if err := Flush(l.Node); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, l.Node, "tcp"); len(got) != 0 {
		t.Errorf("%d entries after a flush", len(got))
	}
	ask(t, l.Client, netip.AddrPortFrom(l.ServiceAddr, 80))
	if got := entries(t, l.Node, "tcp"); len(got) != 1 {
		t.Errorf("%d entries after a connection, want 1", len(got))
	}
}
