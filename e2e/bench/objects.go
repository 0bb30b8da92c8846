package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// populate binds pods to the crowded Node and writes the status of ones that run. The first of them have the addresses of
// the real ones; they come first in what it returns.
func (b *bench) populate(ctx context.Context, namespace string, twins []corev1.Pod) ([]corev1.Pod, error) {
	var all []corev1.Pod
	pods := b.site.Client.CoreV1().Pods(namespace)
	for i := range onCrowded {
		address := fmt.Sprintf("10.250.0.%d", i)
		if i < len(twins) {
			address = twins[i].Status.PodIP
		}
		pod, err := pods.Create(ctx, ordinary(i), metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("make pod: %w", err)
		}
		pod.Status = running(pod, address)
		if pod, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("write status of pod: %w", err)
		}
		all = append(all, *pod)
	}
	return all, nil
}

// ordinary is a pod of the size that they have in production: two containers with their settings, probes and limits.
func ordinary(n int) *corev1.Pod {
	grace := int64(longGrace)
	labels, annotations := map[string]string{}, map[string]string{}
	for i := range 6 {
		labels[fmt.Sprintf("app.example.com/label-%d", i)] = fmt.Sprintf("value-of-pod-%d", n)
		annotations[fmt.Sprintf("app.example.com/annotation-%d", i)] = fmt.Sprintf("a longer text, such as a checksum or a commit, of pod %d", n)
	}
	container := func(name string, port int) corev1.Container {
		c := corev1.Container{
			Name: name, Image: "registry.example.com/team/" + name + ":v1.2.3",
			// the second is where the sessions of the real pods are
			Ports: []corev1.ContainerPort{{Name: name, ContainerPort: int32(port)}, {Name: name + "-tcp", ContainerPort: int32(traffic.DefaultPorts.TCP)}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("32Mi")},
				Limits:   corev1.ResourceList{"memory": resource.MustParse("64Mi")},
			},
			VolumeMounts: []corev1.VolumeMount{{Name: "settings", MountPath: "/etc/settings"}},
		}
		for i := range 12 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: fmt.Sprintf("https://service-%d.example.com/path", i)})
		}
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt(port)},
		}}
		c.LivenessProbe = c.ReadinessProbe
		return c
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ordinary-%d", n), Labels: labels, Annotations: annotations},
		Spec: corev1.PodSpec{
			NodeName:                      crowded,
			TerminationGracePeriodSeconds: &grace,
			// the Node is never ready
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{container("web", 8080), container("proxy", 15001)},
			Volumes: []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}},
			}}},
		},
	}
}

// running is the status that a kubelet gives a pod.
func running(pod *corev1.Pod, address string) corev1.PodStatus {
	now := metav1.Now()
	s := corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}, HostIP: "10.200.0.250",
		HostIPs: []corev1.HostIP{{IP: "10.200.0.250"}}, StartTime: &now, QOSClass: corev1.PodQOSBurstable,
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image + "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
			ContainerID: "containerd://0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s
}
