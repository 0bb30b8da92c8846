package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// These tests are cases from the field, by their numbers: what a pod's annotations change.

// P8: with idle-after a session on which nothing is said for that long does not hold its pod, and is reported as idle;
// without, it does.
func TestP8IdleSession(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		annotations map[string]string
		holds       bool
	}{
		{"without", nil, true},
		{"with idle-after", map[string]string{"conndrain.io/idle-after": "4s"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := drainCase(t, server{grace: 300, annotations: test.annotations})
			c := d.dial(d.c.Outside, d.direct("tcp"))
			d.tracked(d.pod.Status.PodIP, 1)
			d.delete()
			if test.holds {
				d.event(d.pod, "Draining", sessions(1))
				d.holds(12 * time.Second)
				c.Close()
				d.event(d.pod, "Drained", "The last session has ended")
			} else {
				d.event(d.pod, "Drained", "1 idle left out")
			}
			d.ends()
		})
	}
}

// P9: with idle-after a client that has vanished without a FIN does not hold its pod to the deadline.
func TestP9VanishedClientIsIdle(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 300, annotations: map[string]string{"conndrain.io/idle-after": "4s"}})
	d.vanishing("10.200.0.97")
	d.delete()
	d.event(d.pod, "Drained", "1 idle left out")
	d.ends()
}

// P3: conndrain.io/ports leaves a port out that would count.
func TestP3PortsOfTheAnnotationCount(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{
		grace: 300, annotations: map[string]string{"conndrain.io/ports": "8080"},
		service: func(spec *corev1.ServiceSpec) { spec.Ports = portsNamed("http", 8080, "http-metrics", 7000) },
	})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	d.releasedAtOnce()
	c.rest() // the end of the server ends it, and nothing else
	d.ends()
}

// P18: a load balancer goes on sending for a while after it was told not to: the pod stays for that long, by its
// annotation, or because its Service has externalTrafficPolicy Local.
func TestP18MinDelay(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		annotations map[string]string
		policy      corev1.ServiceExternalTrafficPolicy
		want, most  time.Duration
	}{
		{
			"annotation", map[string]string{"conndrain.io/min-delay": "20s"},
			corev1.ServiceExternalTrafficPolicyCluster, 20 * time.Second, 20*time.Second + atOnce,
		},
		{
			"external traffic policy Local", nil,
			corev1.ServiceExternalTrafficPolicyLocal, 15 * time.Second, 15*time.Second + atOnce,
		},
		{
			"both", map[string]string{"conndrain.io/min-delay": "1s"},
			corev1.ServiceExternalTrafficPolicyLocal, time.Second, 15 * time.Second,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := drainCase(t, server{
				node: "n1", grace: 300, annotations: test.annotations,
				service: func(spec *corev1.ServiceSpec) { spec.ExternalTrafficPolicy = test.policy },
			})
			d.delete()
			text := d.event(d.pod, "Drained", "There was no session")
			if after := secondsAfter(t, text); after < test.want || after >= test.most {
				t.Errorf("released %s after the hook's start, want %s after the withdrawal: %s", after, test.want, text)
			}
			d.ends()
		})
	}
}

// An annotation that means nothing is said, and its default is taken.
func TestMalformedAnnotationIsSaid(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 300, annotations: map[string]string{
		"conndrain.io/idle-after": "soon", "conndrain.io/min-delay": "-1s", "conndrain.io/ports": "8080,,", "conndrain.io/unheard": "of",
	}})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	for _, words := range [][]string{
		{"conndrain.io/idle-after", `"soon"`, "use one like 5s"},
		{"conndrain.io/min-delay", `"-1s"`, "is negative"},
		{"conndrain.io/ports", `"8080,,"`, "empty entry"},
		{"conndrain.io/unheard", "not known"},
	} {
		d.event(d.pod, "MalformedAnnotation", words...)
	}
	d.event(d.pod, "Draining", sessions(1), "port 7000/tcp")
	c.Close()
	d.event(d.pod, "Drained", "The last session has ended")
	d.ends()
}
