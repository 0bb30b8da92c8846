package conntrack

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTargetValidate(t *testing.T) {
	good := Target{Addresses: []netip.Addr{pod}}
	with := func(change func(*Target)) Target {
		bad := good
		change(&bad)
		return bad
	}
	for _, tt := range []struct {
		name string
		t    Target
		want []string // one word of each complaint, in order
	}{
		{"an address is enough", good, nil},
		{"everything", Target{
			Addresses: []netip.Addr{pod, addr("fd00::7")}, Ports: []uint16{1, 65535}, Direction: Both,
			Protocols: []Protocol{TCP, UDP, SCTP}, IdleAfter: time.Second, LostAfter: time.Second,
		}, nil},
		{"loopback", Target{Addresses: []netip.Addr{addr("127.0.0.1")}}, nil},
		{"nothing", Target{}, []string{"no address"}},
		{"an empty address", Target{Addresses: []netip.Addr{{}}}, []string{"is empty"}},
		{"every address", Target{Addresses: []netip.Addr{addr("0.0.0.0"), addr("::")}}, []string{"0.0.0.0", "::"}},
		{"multicast", Target{Addresses: []netip.Addr{addr("224.0.0.1"), addr("ff02::1")}}, []string{"224.0.0.1", "ff02::1"}},
		{"port 0", with(func(t *Target) { t.Ports = []uint16{80, 0} }), []string{"port 0"}},
		{"a direction that is none", with(func(t *Target) { t.Direction = 3 }), []string{"direction 3"}},
		{"ICMP", with(func(t *Target) { t.Protocols = []Protocol{1} }), []string{"protocol 1"}},
		{"negative times", with(func(t *Target) { t.IdleAfter, t.LostAfter = -1, -1 }), []string{"idle-after", "lost-after"}},
		{"all that is wrong at once", Target{Ports: []uint16{0}, Direction: 9}, []string{"no address", "port 0", "direction 9"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.t.Validate()
			if len(tt.want) == 0 {
				if err != nil {
					t.Errorf("%v", err)
				}
				return
			}
			if err == nil {
				t.Fatal("no complaint")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("%d complaints, want %d: %v", len(lines), len(tt.want), err)
			}
			for i, line := range lines {
				if !strings.Contains(line, tt.want[i]) {
					t.Errorf("%q does not name %q", line, tt.want[i])
				}
			}
		})
	}
}

func TestTargetNormalized(t *testing.T) {
	ports := []uint16{8080}
	got := Target{
		Addresses: []netip.Addr{addr("::ffff:10.244.1.7"), addr("10.244.1.7"), addr("fe80::1%eth0"), addr("fe80::1")},
		Ports:     ports,
	}.normalized()
	want := Target{
		Addresses: []netip.Addr{addr("10.244.1.7"), addr("fe80::1")},
		Ports:     []uint16{8080}, Protocols: []Protocol{TCP, UDP},
	}
	if d := cmp.Diff(want, got, inside); d != "" {
		t.Error(d)
	}
	ports[0] = 1
	if got.Ports[0] != 8080 {
		t.Error("the caller's ports are shared")
	}
	if got := (Target{Protocols: []Protocol{SCTP}}).normalized(); len(got.Protocols) != 1 {
		t.Errorf("protocols = %v, want what was asked for", got.Protocols)
	}
}

func TestParseWords(t *testing.T) {
	parse := map[string]func(string) (any, error){
		"direction": func(s string) (any, error) { return ParseDirection(s) },
		"protocol":  func(s string) (any, error) { return ParseProtocol(s) },
		"snapshot":  func(s string) (any, error) { return ParseSnapshotMode(s) },
	}
	for _, tt := range []struct {
		what, word string
		want       any
	}{
		{"direction", "inbound", Inbound},
		{"direction", "outbound", Outbound},
		{"direction", "both", Both},
		{"direction", "in", nil},
		{"direction", "", nil},
		{"protocol", "tcp", TCP},
		{"protocol", "UDP", UDP},
		{"protocol", "Sctp", SCTP},
		{"protocol", "icmp", nil},
		{"protocol", "6", nil},
		{"snapshot", "auto", Auto},
		{"snapshot", "filter", Filter},
		{"snapshot", "stream", Stream},
		{"snapshot", "AUTO", nil},
	} {
		got, err := parse[tt.what](tt.word)
		switch {
		case tt.want == nil && (err == nil || !strings.Contains(err.Error(), `"`+tt.word+`": use `)):
			t.Errorf("%s %q: %v, %v, want an error that says what to use", tt.what, tt.word, got, err)
		case tt.want != nil && (err != nil || got != tt.want):
			t.Errorf("%s %q: %v, %v", tt.what, tt.word, got, err)
		}
	}
}
