package node

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/conndrain/conndrain/lifecycle"
)

// port is one that a pod serves, by a slice or by its own declaration.
type port struct {
	name   string
	number uint16
	// protocol is what its Service says is spoken on it; mostly nothing.
	protocol string
	// other is true where it is not one of TCP.
	other bool
}

// metricsPort is the name of a port whose sessions hold nothing where the pod
// serves another one.
const metricsPort = "metrics"

// served are the numbers that count: what the slices list, or what the containers
// declare, or every port, which is none here.
func served(listed []port, pod *corev1.Pod) []uint16 {
	ports := listed
	if len(ports) == 0 {
		ports = declared(pod)
	}
	var numbers, others []uint16
	for _, p := range ports {
		numbers = append(numbers, p.number)
		if p.name != metricsPort {
			others = append(others, p.number)
		}
	}
	if len(others) > 0 {
		numbers = others
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// sideways are ports of the pod for something else than it serves: those that a
// container declares beside a served one, and those for metrics. A port that nobody
// declares is not among them, nor is one of a container of its own: it may be that
// of a proxy which takes what is meant for a served port.
func sideways(pod *corev1.Pod, served []uint16) []uint16 {
	var others []uint16
	for _, c := range running(pod) {
		beside := slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
			n, ok := portNumber(p.ContainerPort)
			return ok && slices.Contains(served, n)
		})
		for _, p := range c.Ports {
			n, ok := portNumber(p.ContainerPort)
			if ok && (beside || p.Name == metricsPort) && !slices.Contains(served, n) && len(served) > 0 {
				others = append(others, n)
			}
		}
	}
	return others
}

// declared are the ports of the pod's containers and native sidecars.
func declared(pod *corev1.Pod) []port {
	var ports []port
	for _, c := range running(pod) {
		for _, p := range c.Ports {
			if n, ok := portNumber(p.ContainerPort); ok {
				ports = append(ports, port{name: p.Name, number: n, other: p.Protocol != "" && p.Protocol != corev1.ProtocolTCP})
			}
		}
	}
	return ports
}

// undeclared are the annotations that name a port which no container of the pod declares,
// where they declare any, and no slice lists: most often it is the Service's, and nothing on
// it is waited for.
func undeclared(pod *corev1.Pod, s lifecycle.Settings, listed []port) []lifecycle.Malformed {
	if len(s.Ports)+len(s.Until.Ports) == 0 {
		return nil
	}
	var numbers []uint16
	for _, p := range declared(pod) {
		numbers = append(numbers, p.number)
	}
	if len(numbers) == 0 {
		return nil
	}
	var all []lifecycle.Malformed
	tell := func(annotation string, named []uint16) {
		for _, n := range named {
			if slices.Contains(numbers, n) || slices.ContainsFunc(listed, func(p port) bool { return p.number == n }) {
				continue
			}
			all = append(all, lifecycle.Malformed{
				Annotation: annotation, Value: strings.TrimSpace(pod.Annotations[annotation]),
				Why: fmt.Sprintf("names port %d, which no container of the pod declares (%s): use the container's port, not the Service's, or declare it",
					n, numbered(numbers)),
			})
			return
		}
	}
	tell(lifecycle.PortsAnnotation, s.Ports)
	tell(lifecycle.UntilAnnotation, slices.Sorted(maps.Keys(s.Until.Ports)))
	return all
}

// maxNamed is how many ports a message names.
const maxNamed = 8

func numbered(ports []uint16) string {
	slices.Sort(ports)
	var names []string
	for _, n := range slices.Compact(ports) {
		if len(names) == maxNamed {
			names = append(names, "and more")
			break
		}
		names = append(names, strconv.Itoa(int(n)))
	}
	return strings.Join(names, ", ")
}

// named are the numbers of the declared ports by their names.
func named(pod *corev1.Pod) map[string][]uint16 {
	numbers := make(map[string][]uint16)
	for _, p := range declared(pod) {
		if p.name != "" {
			numbers[p.name] = append(numbers[p.name], p.number)
		}
	}
	return numbers
}

// running are the containers that run together: not those that only begin a pod.
func running(pod *corev1.Pod) []corev1.Container {
	all := slices.Clone(pod.Spec.Containers)
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			all = append(all, c)
		}
	}
	return all
}

// probed are the ports that the kubelet connects to.
func probed(pod *corev1.Pod) []uint16 {
	var numbers []uint16
	for _, c := range running(pod) {
		for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
			if p == nil {
				continue
			}
			if n, ok := probedPort(p.ProbeHandler, c.Ports); ok && !slices.Contains(numbers, n) {
				numbers = append(numbers, n)
			}
		}
	}
	return numbers
}

func probedPort(p corev1.ProbeHandler, ports []corev1.ContainerPort) (uint16, bool) {
	switch {
	case p.HTTPGet != nil:
		return resolve(p.HTTPGet.Port, ports)
	case p.TCPSocket != nil:
		return resolve(p.TCPSocket.Port, ports)
	case p.GRPC != nil:
		return portNumber(p.GRPC.Port)
	}
	return 0, false
}

func resolve(p intstr.IntOrString, ports []corev1.ContainerPort) (uint16, bool) {
	if p.Type == intstr.Int {
		return portNumber(p.IntVal)
	}
	for _, c := range ports {
		if c.Name == p.StrVal {
			return portNumber(c.ContainerPort)
		}
	}
	return 0, false
}

func portNumber(n int32) (uint16, bool) { return uint16(n), n > 0 && n <= 65535 }
