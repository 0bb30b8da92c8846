package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/conndrain/conndrain/e2e/product"
)

// withSidecar gives a pod a native sidecar, which holds the hooks of its containers instead of a program in them.
func withSidecar(spec *corev1.PodSpec) {
	always := corev1.ContainerRestartPolicyAlways
	spec.InitContainers = append(spec.InitContainers, corev1.Container{
		Name: "prestop", Image: product.HookImage, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{"sidecar"}, RestartPolicy: &always,
		Env: []corev1.EnvVar{{Name: "HOST_IP", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"},
		}}},
		StartupProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(10942)}},
			PeriodSeconds: 1, FailureThreshold: 60,
		},
	})
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if c.Lifecycle == nil || c.Lifecycle.PreStop == nil || c.Lifecycle.PreStop.Exec != nil {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/drain", Port: intstr.FromInt32(10942)},
			}}
		}
	}
}

// P2, P4: a kubelet's call to the sidecar is no session, the hooks of two containers are one drain, and a sidecar that is
// killed alone leaves the application as it is.
func TestP2P4Sidecar(t *testing.T) {
	t.Parallel()
	s := productSpace(t)
	h := s.hold(server{grace: 90, change: func(spec *corev1.PodSpec) {
		second := spec.Containers[0]
		second.Name, second.ReadinessProbe = "second", nil
		second.Args = []string{"server", "-on-term", "exit", "-http", "8081", "-grpc", "9091", "-tcp", "7002", "-udp", "7003"}
		spec.Containers = append(spec.Containers, second)
		withSidecar(spec)
	}}, 25*time.Second, func(pod corev1.Pod) {
		restarted := func(ctx context.Context) (*corev1.Pod, int32, error) {
			now, err := s.c.Client.CoreV1().Pods(s.name).Get(ctx, pod.Name, metav1.GetOptions{})
			if err != nil {
				return nil, 0, err
			}
			return now, now.Status.InitContainerStatuses[0].RestartCount, nil
		}
		// That of this pod alone: others of this run have one too.
		id := pod.Status.InitContainerStatuses[0].ContainerID[len("containerd://"):]
		if _, err := s.node("n1").Run(t.Context(), "sh", "-c", "ctr -n k8s.io tasks kill -s KILL "+id); err != nil {
			t.Fatal(err)
		}
		s.eventually("the sidecar is restarted", func(ctx context.Context) error {
			now, n, err := restarted(ctx)
			switch {
			case err != nil:
				return err
			case n == 0 || now.Status.InitContainerStatuses[0].State.Running == nil || !*now.Status.InitContainerStatuses[0].Started:
				return fmt.Errorf("its state is %+v", now.Status.InitContainerStatuses[0])
			}
			for _, c := range now.Status.ContainerStatuses {
				if c.RestartCount > 0 || !c.Ready {
					return fmt.Errorf("container %s is %+v", c.Name, c)
				}
			}
			return nil
		})
	})
	text := h.event(h.pod, "Draining", "for 1 session")
	t.Log(text)
	h.complete(70 * time.Second)
	h.event(h.pod, "Drained", "The last session has ended")
}

// P25: no shell, nothing to write to, no rights, no token, and a container with a hook of its own: the drain is as ever.
func TestP25BarePod(t *testing.T) {
	t.Parallel()
	s := productSpace(t)
	h := s.hold(server{grace: 90, change: func(spec *corev1.PodSpec) {
		yes, no, user := true, false, int64(65532)
		spec.AutomountServiceAccountToken = &no
		spec.SecurityContext = &corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &user,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		bare := &corev1.SecurityContext{
			ReadOnlyRootFilesystem: &yes, AllowPrivilegeEscalation: &no,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
		own := spec.Containers[0]
		own.Name, own.ReadinessProbe = "own", nil
		own.Args = []string{"server", "-on-term", "exit", "-http", "8081", "-grpc", "9091", "-tcp", "7002", "-udp", "7003"}
		own.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}}
		spec.Containers = append(spec.Containers, own)
		for i := range spec.Containers {
			spec.Containers[i].SecurityContext = bare
		}
	}}, time.Minute, nil) // long enough to be seen on a slow machine
	h.event(h.pod, "Draining", "for 1 session")
	h.event(h.pod, "PartialHook", "own") // reported, and kept
	// The other container's own hook was run, and it is gone before the session is. A kubelet may say so only when all are.
	other := net.JoinHostPort(h.pod.Status.PodIP, "8081")
	h.eventually("the other container has ended", func(ctx context.Context) error {
		c, err := h.node("n1").Namespace().Dial(ctx, "tcp", other)
		if err == nil {
			return errors.Join(errors.New("it runs"), c.Close())
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		return nil
	})
	if _, err := h.c.Client.CoreV1().Pods(h.name).Get(t.Context(), h.pod.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the pod has ended with it: %v", err)
	}
	h.complete(70 * time.Second)
	h.event(h.pod, "Drained", "The last session has ended")
}
