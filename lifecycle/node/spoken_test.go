package node

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// What a port's Service says is spoken on it decides whether requests can be told
// there; a name is only a hint.
func TestVisible(t *testing.T) {
	requests, strict := ports(nil, untilRequests), ports(nil, untilStrict)
	held := func(numbers ...uint16) map[uint16]lifecycle.Until {
		all := make(map[uint16]lifecycle.Until)
		for _, n := range numbers {
			all[n] = untilSessions
		}
		return all
	}
	for _, tc := range []struct {
		name   string
		untils lifecycle.Untils
		listed []port
		want   lifecycle.Untils
		spoken map[uint16]string
	}{
		{"nothing is said", requests, []port{{name: "web", number: 80}}, requests, nil},
		{"HTTP", requests, []port{{number: 80, protocol: "http"}, {number: 443, protocol: "HTTPS"}}, requests, nil},
		{"HTTP on a port of another name", requests, []port{{name: "grpc", number: 80, protocol: "http"}}, requests, nil},
		{"h2c", requests, []port{{number: 80, protocol: "kubernetes.io/h2c"}}, ports(held(80), untilRequests), map[uint16]string{80: "kubernetes.io/h2c"}},
		{"strict, one of two", strict, []port{{number: 80}, {number: 90, protocol: "grpc"}}, ports(held(90), untilStrict), map[uint16]string{90: "grpc"}},
		{"whatever is not HTTP", requests, []port{{number: 80, protocol: "example.com/our-own"}}, ports(held(80), untilRequests), map[uint16]string{80: "example.com/our-own"}},
		{"one of two Services", requests, []port{{number: 80, protocol: "http"}, {number: 80, protocol: "kubernetes.io/ws"}}, ports(held(80), untilRequests), map[uint16]string{80: "kubernetes.io/ws"}},
		{"by its name", requests, []port{{name: "grpc-api", number: 80}}, ports(held(80), untilRequests), map[uint16]string{80: "grpc"}},
		{"a name that only begins so", requests, []port{{name: "wsgi", number: 80}}, requests, nil},
		{"a name, and a policy of that port", ports(map[uint16]lifecycle.Until{80: untilRequests}, untilSessions), []port{{name: "grpc", number: 80}}, ports(map[uint16]lifecycle.Until{80: untilRequests}, untilSessions), nil},
		{"h2c, and a policy of that port", ports(map[uint16]lifecycle.Until{80: untilRequests}, untilSessions), []port{{number: 80, protocol: "kubernetes.io/h2c"}}, ports(held(80), untilSessions), map[uint16]string{80: "kubernetes.io/h2c"}},
		{"a name, and HTTP by another Service", requests, []port{{name: "grpc", number: 80}, {number: 80, protocol: "http"}}, requests, nil},
		{"HTTP, and a name by another Service", requests, []port{{number: 80, protocol: "http"}, {name: "grpc", number: 80}}, requests, nil},
		{"HTTP beside something else and a name", requests, []port{{number: 80, protocol: "h2c"}, {number: 80, protocol: "http"}, {name: "grpc", number: 80}}, ports(held(80), untilRequests), map[uint16]string{80: "h2c"}},
		{"something else of UDP", requests, []port{{number: 443, protocol: "https"}, {number: 443, protocol: "HTTP3", other: true}}, requests, nil},
		{"withdrawn stays", ports(nil, untilWithdrawn), []port{{number: 80, protocol: "grpc"}}, ports(nil, untilWithdrawn), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := len(tc.untils.Ports)
			got, spoken := visible(tc.untils, tc.listed)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("policies (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.spoken, spoken); diff != "" {
				t.Errorf("spoken (-want +got):\n%s", diff)
			}
			if len(tc.untils.Ports) != before {
				t.Error("the pod's own policies were changed")
			}
		})
	}
}

// Where no slice has ever listed the pod, the names that it declares say what is spoken.
func TestToldWithoutASlice(t *testing.T) {
	v := newVigil()
	v.pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{
		{Name: "grpc", ContainerPort: 8080}, {Name: "grpc-udp", ContainerPort: 9000, Protocol: corev1.ProtocolUDP},
	}}}
	if _, spoken := visible(ports(nil, untilRequests), v.told()); !maps.Equal(spoken, map[uint16]string{8080: "grpc"}) {
		t.Errorf("of its own declaration: %v", spoken)
	}
	v.listed = []port{{name: "web", number: 8080}}
	if _, spoken := visible(ports(nil, untilRequests), v.told()); len(spoken) > 0 {
		t.Errorf("beside a slice: %v", spoken)
	}
}

// A port of UDP that a slice lists is served, and is none of TCP.
func TestPortsOfASlice(t *testing.T) {
	number, web, h3 := int32(443), "https", "HTTP3"
	onUDP := corev1.ProtocolUDP
	var r route
	r.add(discoveryv1.EndpointPort{Port: &number, AppProtocol: &web})
	r.add(discoveryv1.EndpointPort{Port: &number, AppProtocol: &h3, Protocol: &onUDP})
	if _, spoken := visible(ports(nil, untilRequests), r.ports); len(spoken) > 0 {
		t.Errorf("spoken %v", spoken)
	}
	if got := served(r.ports[1:], &corev1.Pod{}); !slices.Equal(got, []uint16{443}) {
		t.Errorf("served %v", got)
	}
}

// It is said of a port only while a session on it holds.
func TestWhySpoken(t *testing.T) {
	u, spoken := visible(ports(nil, untilRequests), []port{{number: 8080}, {number: 9000, protocol: "grpc"}})
	served := []uint16{8080, 9000}
	for _, tc := range []struct {
		name string
		all  []conntrack.Session
		says string
	}{
		{"none", nil, ""},
		{"one of the other port", []conntrack.Session{tcp(1, 8080)}, ""},
		{"one that is over", []conntrack.Session{with(tcp(1, 9000), in(conntrack.Idle))}, ""},
		{"one", []conntrack.Session{tcp(1, 8080), tcp(2, 9000)}, "grpc is spoken on port 9000,"},
		{"one that a proxy has taken", []conntrack.Session{with(tcp(2, 15006), askedFor(9000))}, "grpc is spoken on port 9000,"},
		{"one of a Service with such a port", []conntrack.Session{with(tcp(1, 8080), func(s *conntrack.Session) {
			s.Destination = netip.AddrPortFrom(serviceAddr, 9000)
		})}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if why := whySpoken(tc.all, u, served, spoken); !strings.HasPrefix(why, tc.says) || (tc.says == "") != (why == "") {
				t.Errorf("it says %q, want %q", why, tc.says)
			}
		})
	}
}
