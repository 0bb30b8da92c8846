package node

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

// Each thing that may have gone wrong is said, and once.
func TestMissedEvent(t *testing.T) {
	t.Parallel()
	for _, host := range []bool{false, true} {
		r := record.NewFakeRecorder(1)
		events{r}.missed(&corev1.Pod{Spec: corev1.PodSpec{HostNetwork: host}})
		text := <-r.Events
		for _, cause := range []string{"never reached this node's helper", "FailedPreStopHook", "was barred"} {
			if strings.Count(text, cause) != 1 {
				t.Errorf("hostNetwork %t: %q says %q not once", host, text, cause)
			}
		}
		for _, cause := range []string{"or was refused", "has to prove which pod it is", "mount a projected service account token"} {
			if got := strings.Count(text, cause); host && got != 1 || !host && got != 0 {
				t.Errorf("hostNetwork %t: %q says %q %d times", host, text, cause, got)
			}
		}
	}
}
