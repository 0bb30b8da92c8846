package e2e

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// Every protocol from outside, through the NodePort of a node that does not run the pod: what a load balancer does.
func TestEveryProtocolLivesAsLongAsItsPod(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		preStop int64
		want    traffic.Report
	}{
		{"sleep longer than the transfers", 20, traffic.Report{Started: 1, Completed: 1}},
		{"no hook", 0, traffic.Report{Started: 1, Cut: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := sharedSpace(t)
			pod, service := s.serve(server{name: "all", node: "n1", onTerm: "exit", preStop: test.preStop, grace: 60})
			reports := map[string]func() (traffic.Report, error){}
			for _, protocol := range traffic.Protocols() {
				reports[protocol] = s.outside(traffic.Client{
					Protocol: protocol, Address: s.nodePortOf(service, "n2", protocol), Count: 1,
					Transfer: traffic.Transfer{Bytes: 1 << 20, Duration: 10 * time.Second},
				})
			}
			s.eventually("every client has a session", func(ctx context.Context) error {
				for protocol, want := range map[string]map[int]int{
					"tcp": {traffic.DefaultPorts.HTTP: 5, traffic.DefaultPorts.GRPC: 1, traffic.DefaultPorts.TCP: 3},
					"udp": {traffic.DefaultPorts.UDP: 1},
				} {
					for port, n := range want {
						got, err := s.entries(ctx, "n1", protocol, pod.Status.PodIP, port)
						if err != nil {
							return err
						}
						if len(got) < n {
							return fmt.Errorf("%d entries of port %d, want %d", len(got), port, n)
						}
					}
				}
				return nil
			})

			// no pod takes its place: a UDP client would go on with that one
			s.kubectl("scale", "deployment", "all", "--replicas=0")
			for protocol, wait := range reports {
				got, err := wait()
				if err != nil {
					t.Errorf("%s client: %v", protocol, err)
					continue
				}
				want := test.want
				want.Protocol, want.Bytes, want.Errors = protocol, got.Bytes, got.Errors
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s client's report (-want +got):\n%s", protocol, diff)
				}
			}
			s.gone(pod)
		})
	}
}

// What servers do at SIGTERM, without any hook.
func TestServersAtSIGTERM(t *testing.T) {
	t.Parallel()
	const grace = 12
	for _, test := range []struct {
		onTerm string
		want   traffic.Report
		least  time.Duration // from the deletion to the pod's end
	}{
		{"exit", traffic.Report{Started: 1, Cut: 1}, 0},
		{"shutdown", traffic.Report{Started: 1, Completed: 1}, 0},
		{"ignore", traffic.Report{Started: 1, Completed: 1}, grace * time.Second},
	} {
		t.Run(test.onTerm, func(t *testing.T) {
			t.Parallel()
			const protocol = "tcp"
			s := sharedSpace(t)
			pod, service := s.serve(server{name: "web", node: "n2", onTerm: test.onTerm, grace: grace})
			wait := s.outside(traffic.Client{
				Protocol: protocol, Address: s.nodePortOf(service, "n2", protocol), Count: 1,
				Transfer: traffic.Transfer{Bytes: 1 << 20, Duration: 6 * time.Second},
			})
			s.established("n2", pod.Status.PodIP, portOf(protocol))

			deleted := time.Now()
			s.kubectl("delete", "pod", pod.Name, "--wait=false")
			got, err := wait()
			if err != nil {
				t.Fatal(err)
			}
			s.gone(pod)
			if took := time.Since(deleted); took < test.least {
				t.Errorf("pod ended after %s, want %s at least", took, test.least)
			}
			test.want.Protocol, test.want.Bytes, test.want.Errors = protocol, got.Bytes, got.Errors
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("client's report (-want +got):\n%s", diff)
			}
		})
	}
}

// A mesh redirects inside of the pod: the node's conntrack does not show it, and the session is one of the pod's port.
func TestMeshRedirectsInsideThePod(t *testing.T) {
	t.Parallel()
	const protocol = "http"
	s := sharedSpace(t)
	pod, service := s.serve(server{name: "meshed", node: "n1", onTerm: "exit", preStop: 15, grace: 60, mesh: true})
	s.download("client", "n2", traffic.Client{
		Protocol: protocol, Address: addressOf(service.Spec.ClusterIP, protocol), Count: 1,
		Transfer: traffic.Transfer{Bytes: 1 << 20, Duration: 6 * time.Second},
	})
	s.established("n1", pod.Status.PodIP, portOf(protocol))
	s.eventually("the proxy has the connection", func(ctx context.Context) error {
		client, err := s.c.Client.CoreV1().Pods(s.name).Get(ctx, "client", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return s.hasLine(ctx, pod.Name, "proxy", "connection of "+client.Status.PodIP,
			" to "+net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(portOf(protocol))))
	})
	s.kubectl("delete", "pod", pod.Name, "--wait=false")
	if got := s.report("client"); got.Completed != 1 {
		t.Errorf("client's report is %+v, want its transfer completed", got)
	}
}
