package lifecycle

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

var (
	comparePorts = gocmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	inAnyOrder   = gocmp.Transformer("sorted", func(all []Socket) []Socket { return sorted(all) })
)

func sorted(all []Socket) []Socket {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Socket) int {
		return cmp.Or(a.Local.Compare(b.Local), a.Peer.Compare(b.Peer))
	})
	return all
}

// A request never outgrows what a helper reads, and says so when that costs sockets.
func TestSocketListFits(t *testing.T) {
	many := func(n int, local, peer string) []Socket {
		var all []Socket
		for i := range n {
			all = append(all, Socket{
				netip.AddrPortFrom(netip.MustParseAddr(local), 65535),
				netip.AddrPortFrom(netip.MustParseAddr(peer), uint16(10000+i%50000)),
			})
		}
		return all
	}
	for _, tc := range []struct {
		name           string
		inbound, other []Socket
		truncated      bool
	}{
		{"none", nil, nil, false},
		{"five thousand sessions", many(5000, "10.244.1.7", "10.244.200.200"), many(1000, "10.244.1.7", "10.244.200.200"), false},
		{"too many", many(50000, "10.244.1.7", "10.244.200.200"), nil, true},
		{"too many others", many(10, "10.244.1.7", "10.244.200.200"), many(50000, "10.244.1.7", "10.244.200.200"), true},
		{"too many of IPv6", many(50000, "fd00:1234:5678:9abc:def0:1234:5678:9abc", "fd00:1234:5678:9abc:def0:1234:5678:9abc"), nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := NewSocketList([]uint16{8080, 9090}, tc.inbound, tc.other, nil)
			b, err := json.Marshal(DrainRequest{Sockets: &l, Version: "v0.2.0", ElapsedSeconds: 1.0 / 3})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d and %d sockets in %d bytes", len(l.Inbound), len(l.Other), len(b))
			if len(b) > MaxRequestBytes {
				t.Errorf("%d bytes, at most %d", len(b), MaxRequestBytes)
			}
			if l.Truncated != tc.truncated {
				t.Errorf("truncated %t, want %t", l.Truncated, tc.truncated)
			}
			var back DrainRequest
			read(t, string(b), &back)
			if diff := gocmp.Diff(l, *back.Sockets, inAnyOrder, comparePorts); diff != "" {
				t.Errorf("list (-sent +read):\n%s", diff)
			}
		})
	}
}

// What cannot be read proves nothing, and does not spoil the rest of the request.
func TestSocketListThatCannotBeRead(t *testing.T) {
	for _, text := range []string{
		`7`, `"later"`, `[]`, `{"inbound":[1]}`, `{"inbound":{"10.0.0.1":[7]}}`, `{"inbound":{"10.0.0.1":["8080"]}}`,
		`{"inbound":{"host":["8080 10.0.0.2:1"]}}`, `{"inbound":{"10.0.0.1":["70000 10.0.0.2:1"]}}`,
		`{"other":{"10.0.0.1":["8080 10.0.0.2"]}}`, `{"ageSeconds":"long"}`, `{"listening":[70000]}`,
	} {
		var r DrainRequest
		read(t, `{"elapsedSeconds":2,"sockets":`+text+`,"version":"v9"}`, &r)
		if r.Sockets == nil || !r.Sockets.Truncated || len(r.Sockets.Inbound) > 0 || r.ElapsedSeconds != 2 || r.Version != "v9" {
			t.Errorf("%s was read as %+v with %+v", text, r, r.Sockets)
		}
	}
}

// FuzzSocketList holds that whatever comes is read without harm, and that what was
// read is written and read again as the same.
func FuzzSocketList(f *testing.F) {
	f.Add(`{"ageSeconds":0.1,"mark":"a-1","listening":[8080],"inbound":{"10.244.1.7":["8080 10.244.2.9:40000"]},"other":{"fd00::7":["1 [fd00::1]:2"]}}`)
	f.Add(`{"truncated":true}`)
	f.Add(`{"listening":[]}`)
	f.Add(`null`)
	f.Add(`{"inbound":{"10.0.0.1%eth0":["0 [::ffff:1.2.3.4%2]:0"]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var l, again SocketList
		if json.Unmarshal([]byte(text), &l) != nil {
			return // no JSON at all
		}
		b, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &again); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if diff := gocmp.Diff(l, again, inAnyOrder, comparePorts, gocmp.Comparer(slices.Equal[[]uint16])); diff != "" {
			t.Errorf("list (-first +second):\n%s", diff)
		}
	})
}
