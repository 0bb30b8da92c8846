package e2e

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/conndrain/conndrain/e2e/product"
	"github.com/conndrain/conndrain/e2e/traffic"
)

// server is a Deployment of one traffic server, or only its pod, with a Service for every protocol.
type server struct {
	name    string
	node    string // that the pod runs on
	onTerm  string // of the program: exit, shutdown or ignore
	preStop int64  // seconds of the hook's sleep; 0: no hook
	grace   int64  // seconds
	hook    bool   // the hook is ours
	mesh    bool   // its HTTP port is redirected to a proxy in the pod
	dual    bool   // the Service has both families
	bare    bool   // no Deployment: no other pod takes the place of one that ends
	quiet   bool   // no probe: a kubelet's connection is a session too while it is open

	annotations map[string]string
	change      func(*corev1.PodSpec)     // last
	service     func(*corev1.ServiceSpec) // last
}

// serve starts the server and blocks until the Service has its pod as a ready endpoint and every node's kube-proxy knows.
func (s space) serve(srv server) (corev1.Pod, *corev1.Service) {
	s.Helper()
	labels := map[string]string{"app": srv.name}
	s.run(srv, labels)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: srv.name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: labels, Ports: servicePorts()},
	}
	if srv.dual {
		policy := corev1.IPFamilyPolicyRequireDualStack
		service.Spec.IPFamilyPolicy = &policy
	}
	if srv.service != nil {
		srv.service(&service.Spec)
	}
	service, err := s.c.Client.CoreV1().Services(s.name).Create(s.Context(), service, metav1.CreateOptions{})
	if err != nil {
		s.Fatalf("make Service: %v", err)
	}
	var pod corev1.Pod
	s.eventually("server "+srv.name+" is ready", func(ctx context.Context) error {
		pods, err := s.pods(ctx, srv.name)
		if err != nil {
			return err
		}
		if len(pods) != 1 {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		pod = pods[0]
		conditions, err := s.conditions(ctx, srv.name, pod)
		if err != nil {
			return err
		}
		// the list may be older than the slice
		if !conditions.ready || pod.Status.PodIP == "" || pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pod is %s with address %q, its endpoint %+v", pod.Status.Phase, pod.Status.PodIP, conditions)
		}
		return nil
	})
	for _, n := range s.c.Nodes {
		if service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && n.Name != srv.node {
			continue // it has no endpoint
		}
		s.eventually("kube-proxy of "+n.Name+" serves "+srv.name, func(ctx context.Context) error {
			conn, err := s.c.Outside.Dial(ctx, "tcp", s.nodePortOf(service, n.Name, "http"))
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
	return pod, service
}

// run makes the Deployment or the pod.
func (s space) run(srv server, labels map[string]string) {
	s.Helper()
	meta := metav1.ObjectMeta{Labels: labels, Annotations: srv.annotations}
	if srv.bare {
		meta.Name = srv.name
		_, err := s.c.Client.CoreV1().Pods(s.name).Create(s.Context(), &corev1.Pod{
			ObjectMeta: meta, Spec: srv.pod(),
		}, metav1.CreateOptions{})
		if err != nil {
			s.Fatalf("make pod: %v", err)
		}
		return
	}
	_, err := s.c.Client.AppsV1().Deployments(s.name).Create(s.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: srv.name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: meta, Spec: srv.pod()},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatalf("make Deployment: %v", err)
	}
}

func (srv server) pod() corev1.PodSpec {
	main := corev1.Container{
		Name: "server", Image: trafficImage, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{"server", "-on-term", srv.onTerm},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/ready", Port: intstr.FromInt(traffic.DefaultPorts.HTTP),
			}},
			PeriodSeconds: 1, TimeoutSeconds: 5,
		},
	}
	if srv.quiet {
		main.ReadinessProbe = nil
	}
	if srv.preStop > 0 {
		main.Lifecycle = &corev1.Lifecycle{
			PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: srv.preStop}},
		}
	}
	spec := corev1.PodSpec{
		Containers:                    []corev1.Container{main},
		TerminationGracePeriodSeconds: &srv.grace,
		NodeSelector:                  map[string]string{corev1.LabelHostname: srv.node},
	}
	if srv.hook {
		product.AddHook(&spec)
	}
	if srv.mesh {
		addProxy(&spec)
	}
	if srv.change != nil {
		srv.change(&spec)
	}
	return spec
}

// addProxy gives a pod what a mesh injects: an init container that redirects, and a proxy that outlives the server.
func addProxy(spec *corev1.PodSpec) {
	always := corev1.ContainerRestartPolicyAlways
	spec.InitContainers = []corev1.Container{
		{
			Name: "redirect", Image: trafficImage, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"redirect"},
			SecurityContext: &corev1.SecurityContext{
				Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}},
			},
		},
		{
			Name: "proxy", Image: trafficImage, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"proxy"},
			RestartPolicy: &always,
		},
	}
}

func servicePorts() []corev1.ServicePort {
	ports := portsNamed("http", traffic.DefaultPorts.HTTP, "grpc", traffic.DefaultPorts.GRPC,
		"tcp", traffic.DefaultPorts.TCP, "udp", traffic.DefaultPorts.UDP)
	ports[3].Protocol = corev1.ProtocolUDP
	return ports
}

// portsNamed are TCP ports of a Service, from pairs of a name and a number.
func portsNamed(pairs ...any) []corev1.ServicePort {
	var ports []corev1.ServicePort
	for i := 0; i < len(pairs); i += 2 {
		number := pairs[i+1].(int)
		ports = append(ports, corev1.ServicePort{
			Name: pairs[i].(string), Protocol: corev1.ProtocolTCP, Port: int32(number), TargetPort: intstr.FromInt(number),
		})
	}
	return ports
}

// conditions of an endpoint, as an EndpointSlice says them.
type conditions struct{ ready, serving, terminating bool }

// conditions are those of the pod in the slices of a Service. It is an error when no slice lists the pod.
func (s space) conditions(ctx context.Context, service string, pod corev1.Pod) (conditions, error) {
	list, err := s.c.Client.DiscoveryV1().EndpointSlices(s.name).List(ctx, metav1.ListOptions{
		LabelSelector: "kubernetes.io/service-name=" + service,
	})
	if err != nil {
		return conditions{}, fmt.Errorf("list EndpointSlices: %w", err)
	}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.TargetRef == nil || e.TargetRef.UID != pod.UID {
				continue
			}
			is := func(b *bool) bool { return b != nil && *b }
			return conditions{is(e.Conditions.Ready), is(e.Conditions.Serving), is(e.Conditions.Terminating)}, nil
		}
	}
	return conditions{}, fmt.Errorf("no EndpointSlice of %s lists pod %s", service, pod.Name)
}
