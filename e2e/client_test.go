package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// download starts a pod on a node that makes the transfers of the client's settings; report waits for its end.
func (s space) download(name, node string, c traffic.Client) {
	s.Helper()
	_, err := s.c.Client.CoreV1().Pods(s.name).Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName:      node,
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{
				Name: "client", Image: trafficImage, ImagePullPolicy: corev1.PullIfNotPresent, Args: clientArgs(c),
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatalf("make client pod: %v", err)
	}
}

// report blocks until a client's pod has ended and returns its report.
func (s space) report(name string) traffic.Report {
	s.Helper()
	var report traffic.Report
	s.eventually("client "+name+" ends", func(ctx context.Context) error {
		pod, err := s.c.Client.CoreV1().Pods(s.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get client pod: %w", err)
		}
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			return fmt.Errorf("pod is %s", pod.Status.Phase)
		}
		out, err := s.logs(ctx, name, "client")
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil {
			return fmt.Errorf("read report %q: %w", out, err)
		}
		return nil
	})
	return report
}

// outside runs a client outside of the cluster and returns the call that waits for its report.
func (s space) outside(c traffic.Client) (wait func() (traffic.Report, error)) {
	s.Helper()
	program, err := trafficProgram()
	if err != nil {
		s.Fatal(err)
	}
	type result struct {
		report traffic.Report
		err    error
	}
	done := make(chan result, 1)
	cmd := s.c.Outside.Command(s.Context(), program, clientArgs(c)...)
	go func() {
		var r result
		out, err := cmd.Output()
		if r.err = err; err == nil {
			r.err = json.Unmarshal(out, &r.report)
		}
		done <- r
	}()
	return func() (traffic.Report, error) {
		r := <-done // the test's context ends the client
		return r.report, r.err
	}
}

// nodePortOf is where a client outside finds a protocol of the Service, through the node.
func (s space) nodePortOf(service *corev1.Service, node, protocol string) string {
	s.Helper()
	for _, p := range service.Spec.Ports {
		if int(p.Port) == portOf(protocol) {
			return net.JoinHostPort(s.node(node).Addresses[0], strconv.Itoa(int(p.NodePort)))
		}
	}
	s.Fatalf("Service %s has no port for %s", service.Name, protocol)
	return ""
}

func clientArgs(c traffic.Client) []string { return append([]string{"client"}, c.Args()...) }

// portOf is where the server has a protocol.
func portOf(protocol string) int {
	switch protocol {
	case "grpc":
		return traffic.DefaultPorts.GRPC
	case "tcp", "halfclose", "pool":
		return traffic.DefaultPorts.TCP
	case "udp":
		return traffic.DefaultPorts.UDP
	default:
		return traffic.DefaultPorts.HTTP
	}
}

// addressOf is where a client finds a protocol of the Service at one of its addresses.
func addressOf(clusterIP, protocol string) string {
	return net.JoinHostPort(clusterIP, strconv.Itoa(portOf(protocol)))
}

// entry is a line of a node's conntrack table, as the conntrack command prints it.
type entry string

// entries lists the node's TCP or UDP entries whose replies come from the address and port: the sessions of a pod.
func (s space) entries(ctx context.Context, node, protocol, address string, port int) ([]entry, error) {
	family := "ipv4"
	if strings.Contains(address, ":") {
		family = "ipv6"
	}
	out, err := s.node(node).Run(ctx, "conntrack", "--dump", "--family", family, "--proto", protocol,
		"--reply-src", address, "--reply-port-src", strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	var all []entry
	for line := range strings.Lines(out) {
		all = append(all, entry(strings.TrimSpace(line)))
	}
	return all, nil
}

// probe says whether the entry is a kubelet's look at a pod: it comes from the first address of the node's pods.
func (e entry) probe() bool {
	for f := range strings.FieldsSeq(string(e)) {
		if text, ok := strings.CutPrefix(f, "src="); ok {
			source, err := netip.ParseAddr(text)
			if err != nil {
				return false
			}
			bits := 64
			if source.Is4() {
				bits = 24
			}
			return source == netip.PrefixFrom(source, bits).Masked().Addr().Next()
		}
	}
	return false
}

// established blocks until the node has a client's TCP entry that is ESTABLISHED with the pod as its reply source.
func (s space) established(node, address string, port int) entry {
	s.Helper()
	var found entry
	s.eventually("session of "+address, func(ctx context.Context) error {
		all, err := s.entries(ctx, node, "tcp", address, port)
		if err != nil {
			return err
		}
		for _, e := range all {
			if strings.Contains(string(e), "ESTABLISHED") && !e.probe() {
				found = e
				return nil
			}
		}
		return fmt.Errorf("no ESTABLISHED entry among %q", all)
	})
	return found
}
