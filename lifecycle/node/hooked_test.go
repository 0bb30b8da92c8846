package node

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func execHook(command ...string) *corev1.Lifecycle {
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}}
}

func httpHook(path string) *corev1.Lifecycle {
	return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: path}}}
}

var sleepHook = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}

func TestHooked(t *testing.T) {
	for _, tc := range []struct {
		name string
		l    *corev1.Lifecycle
		want bool
	}{
		{"none", nil, false},
		{"only a postStart", &corev1.Lifecycle{PostStart: execHook("/prestop").PreStop}, false},
		{"exec", execHook("/conndrain/prestop"), true},
		{"with flags", execHook("prestop", "--grace", "60s"), true},
		{"in a shell", execHook("sh", "-c", "/conndrain/prestop --port 80; sleep 2"), true},
		{"in a shell, quoted and last", execHook("/bin/sh", "-c", `echo bye&&"/opt/prestop"`), true},
		{"behind a wrapper", execHook("/usr/bin/env", "A=b", "/prestop"), true},
		{"a script of that name", execHook("/scripts/prestop.sh"), false},
		{"another program", execHook("/bin/sleep", "15"), false},
		{"sleep", sleepHook, false},
		{"http", httpHook("/drain"), true},
		{"http elsewhere", httpHook("/drain_listeners"), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &corev1.Container{Lifecycle: tc.l}
			if got := hooked(c); got != tc.want {
				t.Errorf("hooked: %t", got)
			}
			// What the cache keeps says the same, however often it is trimmed.
			c.Lifecycle = trimLifecycle(c)
			again := &corev1.Container{Lifecycle: trimLifecycle(c)}
			if hooked(c) != tc.want || hooked(again) != tc.want {
				t.Error("trimmed, it says something else")
			}
		})
	}
}

func TestP31Unhooked(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	container := func(name string, l *corev1.Lifecycle) corev1.Container {
		return corev1.Container{Name: name, Lifecycle: l}
	}
	ours := execHook("/prestop")
	for _, tc := range []struct {
		name       string
		containers []corev1.Container
		want       []string
	}{
		{"all have one", []corev1.Container{container("web", ours), container("proxy", httpHook("/drain"))}, nil},
		{"one has none", []corev1.Container{container("web", ours), container("envoy", nil)}, []string{"envoy"}},
		{"one has another's", []corev1.Container{container("web", ours), container("envoy", sleepHook)}, []string{"envoy"}},
		{"a script in the only one", []corev1.Container{container("web", execHook("/stop.sh"))}, nil},
		{"a script in one of two", []corev1.Container{container("web", execHook("/stop.sh")), container("envoy", nil)}, []string{"envoy"}},
		{"scripts in both", []corev1.Container{container("web", execHook("/stop.sh")), container("envoy", sleepHook)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{
				Containers: tc.containers,
				// Neither has a preStop, and neither ends before the others have.
				InitContainers: []corev1.Container{{Name: "migrate"}, {Name: "sidecar", RestartPolicy: &always}},
			}}
			if diff := cmp.Diff(tc.want, unhooked(pod)); diff != "" {
				t.Errorf("containers (-want +got):\n%s", diff)
			}
		})
	}
}
