package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/e2e/product"
)

// P31: of a pod's containers one has no hook. The others have one drain together, and a warning names the one that is gone
// at once.
func TestP31ContainerWithoutHookIsNamed(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 120, change: func(spec *corev1.PodSpec) {
		twin := spec.Containers[0] // with its hook
		twin.Name, twin.Args = "twin", portsFrom(20000)
		bare := twin
		bare.Name, bare.Args, bare.Lifecycle, bare.VolumeMounts = "bare", portsFrom(21000), nil, nil
		spec.Containers = append(spec.Containers, twin, bare)
	}})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	d.delete()
	text := d.event(d.pod, "PartialHook", "bare")
	if hasAll(text, []string{"twin"}) {
		t.Errorf("a container with the hook is named too: %s", text)
	}
	d.event(d.pod, "Draining", sessions(1))
	c.open()
	c.Close()
	d.event(d.pod, "Drained", "The last session has ended")
	for _, reason := range []string{"Draining", "Drained", "PartialHook"} {
		if n := d.events(d.pod, reason); n != 1 {
			t.Errorf("%d Events say %s, want one of one drain", n, reason)
		}
	}
	d.ends()
}

// portsFrom are arguments of a server beside another one in its pod.
func portsFrom(port int) []string {
	args := []string{"server", "-on-term", "exit"}
	for i, name := range []string{"-http", "-grpc", "-tcp", "-udp"} {
		args = append(args, name, fmt.Sprint(port+i))
	}
	return args
}

// P1: a container whose image is changed is started anew in its pod, without a wait for the session that its pod has.
func TestP1ImageChangeDoesNotDrain(t *testing.T) {
	t.Parallel()
	d := drainCase(t, server{grace: 300})
	c := d.dial(d.c.Outside, d.direct("tcp"))
	d.tracked(d.pod.Status.PodIP, 1)
	begin := time.Now()
	d.kubectl("set", "image", "pod/"+d.pod.Name, "server="+product.HookImage)
	c.rest() // until its server ends
	if took := time.Since(begin); took > atOnce {
		t.Errorf("the container ended %s after its image was changed, want 3 s", took)
	}
}
