package cluster

import (
	"net/netip"
	"strings"
	"testing"
)

func TestPlanHasTheFamiliesInTheirOrder(t *testing.T) {
	for _, test := range []struct {
		families         Families
		node, pods, join string
	}{
		{IPv4, "10.200.0.11", "10.244.1.0/24", "10.96.0.0/16"},
		{IPv6, "fd00:200::11", "fd00:244:1::/64", "fd00:96::/112"},
		{DualStack, "10.200.0.11 fd00:200::11", "10.244.1.0/24 fd00:244:1::/64", "10.96.0.0/16 fd00:96::/112"},
	} {
		p := plan{test.families}
		for _, got := range []struct {
			all  []string
			want string
		}{
			{addrs(p.host(nodeNumber(1))), test.node},
			{texts(p.pods(1)), test.pods},
			{texts(p.services()), test.join},
		} {
			if text := strings.Join(got.all, " "); text != got.want {
				t.Errorf("%s: %q, want %q", test.families, text, got.want)
			}
		}
	}
}

func TestPlanGivesNoAddressTwice(t *testing.T) {
	p := plan{DualStack}
	seen := map[netip.Addr]bool{}
	numbers := []int{1, outsideNumber, controlNumber}
	for n := 1; n <= maxNodes; n++ {
		numbers = append(numbers, nodeNumber(n))
	}
	for _, n := range numbers {
		for _, prefix := range p.host(n) {
			if seen[prefix.Addr()] {
				t.Errorf("%s is there twice", prefix.Addr())
			}
			seen[prefix.Addr()] = true
		}
	}
	for n := 1; n <= maxNodes; n++ {
		for i, pods := range p.pods(n) {
			if !p.allPods()[i].Contains(pods.Addr()) || p.services()[i].Overlaps(pods) {
				t.Errorf("pods of node %d have %s", n, pods)
			}
		}
	}
}
