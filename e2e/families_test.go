package e2e

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/e2e/cluster"
	"github.com/conndrain/conndrain/e2e/product"
	"github.com/conndrain/conndrain/e2e/traffic"
)

// Every kind of cluster that a test can ask for, one after the other.
func TestFamiliesAndProxyModes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		options cluster.Options
		v4, v6  bool
	}{
		{cluster.Options{Nodes: 2, ProxyMode: "iptables", Families: cluster.IPv4}, true, false},
		{cluster.Options{ProxyMode: "nftables", Families: cluster.IPv6}, false, true},
		{cluster.Options{ProxyMode: "iptables", Families: cluster.DualStack}, true, true},
	} {
		t.Run(test.options.ProxyMode+" "+string(test.options.Families), func(t *testing.T) {
			t.Parallel()
			c := startFor(t, test.options)
			s := newSpace(t, c)
			pod, service := s.serve(server{
				name: "web", node: "n1", onTerm: "exit", grace: 30, dual: test.v4 && test.v6,
			})
			found := map[bool]bool{} // IPv6 or not
			for i, address := range service.Spec.ClusterIPs {
				found[netip.MustParseAddr(address).Is6()] = true
				for _, protocol := range []string{"http", "udp"} {
					name := protocol + string(rune('a'+i))
					s.download(name, "n1", traffic.Client{
						Protocol: protocol, Address: addressOf(address, protocol), Count: 1,
						Transfer: traffic.Transfer{Bytes: 1 << 16, Duration: time.Second},
					})
					if got := s.report(name); got.Completed != 1 {
						t.Errorf("%s client of %s reports %+v", protocol, address, got)
					}
				}
			}
			if want := (map[bool]bool{false: test.v4, true: test.v6}); found[false] != want[false] || found[true] != want[true] {
				t.Errorf("Service has addresses %v", service.Spec.ClusterIPs)
			}
			if len(pod.Status.PodIPs) != len(service.Spec.ClusterIPs) {
				t.Errorf("pod has addresses %v, Service %v", pod.Status.PodIPs, service.Spec.ClusterIPs)
			}
			rules, err := s.node("n1").Run(t.Context(), "nft", "list", "ruleset")
			if err != nil {
				t.Fatal(err)
			}
			if nft := strings.Contains(rules, "kube-proxy"); nft != (test.options.ProxyMode == "nftables") {
				t.Errorf("the node has kube-proxy's nftables: %v", nft)
			}
			if test.v4 && test.v6 {
				return
			}
			if err := product.Install(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if test.v4 { // P11 by the rules of the other kube-proxy
				everyWay(newDrainCase(newSpace(t, c), server{grace: 300}))
			} else {
				testP12Only(t, newSpace(t, c))
			}
		})
	}
}

// Options reach the components: what a kubelet says of itself.
func TestKubeletHasItsOptions(t *testing.T) {
	t.Parallel()
	c := startFor(t, cluster.Options{
		FeatureGates:                    map[string]bool{"NodeLogQuery": true},
		ShutdownGracePeriod:             40 * time.Second,
		ShutdownGracePeriodCriticalPods: 15 * time.Second,
	})
	b, err := c.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/n1/proxy/configz").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type kubeletConfig struct {
		FeatureGates                    map[string]bool
		ShutdownGracePeriod             string
		ShutdownGracePeriodCriticalPods string
	}
	var got struct{ KubeletConfig kubeletConfig }
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	want := kubeletConfig{map[string]bool{"NodeLogQuery": true}, "40s", "15s"}
	if diff := cmp.Diff(want, got.KubeletConfig); diff != "" {
		t.Errorf("kubelet's configuration (-want +got):\n%s", diff)
	}
}
