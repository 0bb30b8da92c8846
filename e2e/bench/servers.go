package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/conndrain/conndrain/e2e/product"
	"github.com/conndrain/conndrain/e2e/traffic"
)

const (
	app       = "server" // of the label app, the Service and the container
	maxPods   = 100      // of the bench on one node, which has room for 110
	longGrace = 3600     // seconds: no deadline comes into the figures
)

// serverSpec is a pod of one traffic server that ends at SIGTERM at once, the hardest way.
func serverSpec(grace int64) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: app, Image: trafficImage, ImagePullPolicy: corev1.PullIfNotPresent,
			Args: []string{"server", "-on-term", "exit"},
			Ports: []corev1.ContainerPort{
				{Name: "http", ContainerPort: int32(traffic.DefaultPorts.HTTP)},
				{Name: "grpc", ContainerPort: int32(traffic.DefaultPorts.GRPC)},
				{Name: "tcp", ContainerPort: int32(traffic.DefaultPorts.TCP)},
			},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/ready", Port: intstr.FromInt(traffic.DefaultPorts.HTTP),
			}}, PeriodSeconds: 10, TimeoutSeconds: 5},
		}},
	}
}

// service makes the Service of a namespace's servers.
func (s *site) service(ctx context.Context, namespace string) (*corev1.Service, error) {
	port := func(name string, number int) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: int32(number), TargetPort: intstr.FromInt(number)}
	}
	service, err := s.Client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": app},
			Ports: []corev1.ServicePort{
				port("http", traffic.DefaultPorts.HTTP), port("grpc", traffic.DefaultPorts.GRPC), port("tcp", traffic.DefaultPorts.TCP),
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("make Service: %w", err)
	}
	return service, nil
}

// hooked starts n servers with the product's hook on the busy node, behind a Service, each a pod without a controller that
// would start another in its place, and blocks until each is routed to.
func (b *bench) hooked(ctx context.Context, namespace string, n int, change func(*corev1.Pod)) ([]corev1.Pod, error) {
	b.say("starting %d servers", n)
	if _, err := b.site.service(ctx, namespace); err != nil {
		return nil, err
	}
	pods := b.site.Client.CoreV1().Pods(namespace)
	for i := range n {
		pod := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: nameOf(i), Labels: map[string]string{"app": app}},
			Spec:       serverSpec(longGrace),
		}
		pod.Spec.NodeName = busy
		product.AddHook(&pod.Spec)
		if change != nil {
			change(&pod)
		}
		if _, err := pods.Create(ctx, &pod, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("make pod: %w", err)
		}
	}
	var ready []corev1.Pod
	err := await(ctx, "servers are ready", func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		ready = ready[:0]
		for _, pod := range list.Items {
			if isReady(pod) {
				ready = append(ready, pod)
			}
		}
		if len(ready) < n {
			return fmt.Errorf("%d of %d are", len(ready), n)
		}
		routed, err := b.site.routed(ctx, namespace)
		if err == nil && routed < n {
			err = fmt.Errorf("%d of %d are ready endpoints", routed, n)
		}
		return err
	})
	return ready, err
}

// nameOf is the name of a server without a controller.
func nameOf(i int) string { return fmt.Sprintf("%s-%d", app, i) }

func isReady(pod corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// routed counts the ready endpoints of a namespace.
func (s *site) routed(ctx context.Context, namespace string) (int, error) {
	list, err := s.Client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list EndpointSlices: %w", err)
	}
	n := 0
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				n++
			}
		}
	}
	return n, nil
}

// remove asks for the end of a pod, with its own grace period.
func (s *site) remove(ctx context.Context, pod corev1.Pod) error {
	err := s.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", pod.Name, err)
	}
	return nil
}
