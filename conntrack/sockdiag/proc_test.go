package sockdiag

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const procHead = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

// What a little-endian kernel printed.
const procListing = procHead +
	"   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 512 1 0000000008b0b3a7 100 0 0 10 0\n" +
	"   1: 0701F40A:1F90 140AA8C0:9C40 01 0000000A:0000000B 00:00000000 00000000  1000        0 4711 1 0000000000000000 20 4 30 10 -1\n" +
	"   2: 0701F40A:1F90 140AA8C0:9C41 06 00000000:00000000 03:00000F34 00000000     0        0 0 3 0000000000000000\n" +
	"   1: 0701F40A:1F90 140AA8C0:9C40 01 0000000A:0000000B 00:00000000 00000000  1000        0 4711 1 0000000000000000 20 4 30 10 -1\n"

func TestReadProc(t *testing.T) {
	t.Parallel()
	var got []Socket
	err := readProc(t.Context(), strings.NewReader(procListing), familyIPv4, func(a answer) { got = append(got, a.Socket) })
	if err != nil {
		t.Fatal(err)
	}
	want := []Socket{
		{netip.MustParseAddrPort("0.0.0.0:8080"), netip.MustParseAddrPort("0.0.0.0:0"), Listen, 0, 0, 512},
		{netip.MustParseAddrPort("10.244.1.7:8080"), netip.MustParseAddrPort("192.168.10.20:40000"), Established, 11, 10, 4711},
	}
	if diff := cmp.Diff(want, got, byValue); diff != "" {
		t.Errorf("sockets, each once (-want +got):\n%s", diff)
	}
}

func TestDecodeProcIPv6(t *testing.T) {
	t.Parallel()
	const rest = " 08 00000000:00000001 00:00000000 00000000     0        0 9 1 0 20 4 30 10 -1\n"
	for line, want := range map[string]Socket{
		"0: 440200FD000001000000000007000000:1F90 100000FD000000000000000020000000:C738": {
			netip.MustParseAddrPort("[fd00:244:1::7]:8080"), netip.MustParseAddrPort("[fd00:10::20]:51000"), CloseWait, 1, 0, 9,
		},
		"0: 0000000000000000FFFF00000701F40A:1F90 0000000000000000FFFF0000140AA8C0:9C40": {
			netip.MustParseAddrPort("10.244.1.7:8080"), netip.MustParseAddrPort("192.168.10.20:40000"), CloseWait, 1, 0, 9,
		},
	} {
		got, err := decodeProc([]byte(line+rest), familyIPv6)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, byValue); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}

// Half a list is none: what is missing may be what holds.
func TestReadProcKeepsNothingOfABrokenList(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		procListing[:len(procListing)-30],
		procListing + "what\n",
		procListing + strings.Repeat("x", 3*readSize),
		procListing + "3: 0701F40A:1F90 140AA8C0:9C40 01 1000000000A:0000000B 00:0 0 0 0 1\n",
		procListing + "3: 0701F40A:1F90 140AA8C0:19C40 01 0000000A:0000000B 00:0 0 0 0 1\n",
		procListing + "3: 0701F40A:1F90 140AA8C0FF:9C40 01 0000000A:0000000B 00:0 0 0 0 1\n",
	} {
		err := readProc(t.Context(), strings.NewReader(text), familyIPv4, func(answer) {})
		if !errors.Is(err, errProcLine) {
			t.Errorf("%q: error %v", text[len(procHead):], err)
		}
	}
}

func FuzzDecodeProc(f *testing.F) {
	for line := range strings.Lines(procListing) {
		f.Add([]byte(line), byte(familyIPv4))
	}
	f.Add([]byte("0: 0000000000000000FFFF00000701F40A:1F90 0000000000000000FFFF0000140AA8C0:9C40 01 0:0 0:0 0 0 0 1"), byte(familyIPv6))
	f.Fuzz(func(t *testing.T, b []byte, family byte) {
		s, err := decodeProc(b, family)
		if err != nil {
			if diff := cmp.Diff(Socket{}, s, byValue); diff != "" {
				t.Errorf("an error came with a socket:\n%s", diff)
			}
			return
		}
		for _, a := range []netip.Addr{s.Local.Addr(), s.Peer.Addr()} {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Errorf("address %q is not plain", a)
			}
		}
		if fmt.Sprint(s.State) == "" {
			t.Errorf("state %d has no name", s.State)
		}
	})
}

func TestOwnFromProc(t *testing.T) {
	t.Parallel()
	const trie = `Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.244.1.0/24 2 0 2
        |-- 10.244.1.0
           /24 link UNICAST
        |-- 10.244.1.7
           /32 host LOCAL
        |-- 10.244.1.255
           /32 link BROADCAST
        |-- 127.0.0.0
           /8 host LOCAL
           /32 link BROADCAST
`
	got, err := ownFromTrie(strings.NewReader(trie))
	if diff := cmp.Diff([]netip.Addr{netip.MustParseAddr("10.244.1.7")}, got, byValue); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	got, err = ownFromInet6(strings.NewReader("fd000244000100000000000000000007 02 40 00 80 to-node\n"))
	if diff := cmp.Diff([]netip.Addr{netip.MustParseAddr("fd00:244:1::7")}, got, byValue); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if got, err := ownFromInet6(strings.NewReader("fd00\n")); err == nil {
		t.Errorf("%v of what is none", got)
	}
}
