package e2e

import (
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// P13: a pod on its node's own network has the node's address, and the node's sessions are not its own. Without a proof of
// which pod asks it is refused, with a message that says what to do, and gets a plain sleep.
func TestP13HostNetworkIsRefused(t *testing.T) {
	t.Parallel()
	const sleep = 15 * time.Second
	d := drainCase(t, server{grace: 300, change: func(spec *corev1.PodSpec) { spec.HostNetwork = true }})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	out := d.kubectl("exec", d.pod.Name, "--", "/conndrain/prestop", "--fallback-sleep", "1s")
	if !hasAll(out, []string{"hostNetwork", "token", "conndrain.io/ports"}) {
		t.Errorf("the hook does not say why it was refused:\n%s", out)
	}
	d.delete()
	d.holds(sleep - 3*time.Second)
	c.Close()
	if took := d.ends(); took < sleep || took > sleep+atOnce {
		t.Errorf("pod went %s after its deletion, want a sleep of %s", took, sleep)
	}
	if n := d.events(d.pod, "Drained"); n != 0 {
		t.Errorf("%d Events say Drained of what nobody knows", n)
	}
}

// P13: with a token that proves it, and its ports named, such a pod is held by the sessions of those ports and by no other
// of the node.
func TestP13HostNetworkWithATokenIsHeld(t *testing.T) {
	t.Parallel()
	const mount, seconds = "/var/run/conndrain", 3600
	expires := int64(seconds)
	d := drainCase(t, server{
		node: "n2", grace: 300, annotations: map[string]string{"conndrain.io/ports": "7000"},
		change: func(spec *corev1.PodSpec) {
			spec.HostNetwork = true
			spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "token", VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
					ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
						Audience: "conndrain", ExpirationSeconds: &expires, Path: "token",
					},
				}}},
			}})
			main := &spec.Containers[0]
			main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "token", MountPath: mount, ReadOnly: true})
			main.Env = append(main.Env, corev1.EnvVar{Name: "CONNDRAIN_TOKEN_FILE", Value: mount + "/token"})
		},
	})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	kubelet := d.dial(d.c.Outside, net.JoinHostPort(d.pod.Status.PodIP, "10250")) // another of the node's
	d.delete()
	d.event(d.pod, "Draining", sessions(1), c.LocalAddr().String(), "port 7000/tcp")
	d.holds(8 * time.Second)
	c.open()
	c.Close()
	d.event(d.pod, "Drained", "The last session has ended")
	d.ends()
	kubelet.open()
}
