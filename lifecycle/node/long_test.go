package node

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/lifecycle"
)

// A time that is as long as the pod can be held is told of where it counts.
func TestTimesThatTakeAllTime(t *testing.T) {
	for _, tc := range []struct {
		annotations, want string // a line each
	}{
		{"settle: 1h", `settle: "1h" takes all of the 24 s that the pod can be held, whatever its sessions do: use less`},
		{"min-delay: 24s", `min-delay: "24s" takes all of the 24 s that the pod can be held, whatever its sessions do: use less`},
		{"settle: 23s", ""},
		{"settle: 0s", ""},
		{"until: requests\nquiet: 24s", `quiet: "24s" is no less than the 24 s that the pod can be held, so that it releases only what was silent before: use less, or a longer grace period`},
		{"until: requests\nquiet: 23s", ""},
		{"until: requests\nquiet: 1h\nidle-after: 10s", ""},
		{"until: requests\nquiet: 0s", ""},
		{"quiet: 1h\nbusy-after: 1h", ""}, // nobody goes by them
		{"until: 8080=requests-strict\nbusy-after: 19s", `busy-after: "19s" is no less than the 19 s that settle and min-delay leave of the 24 s that the pod can be held, so that it never releases anything: use less, or a longer grace period`},
		{"until: requests\nbusy-after: 19s\nsettle: 4s", ""},
		{"until: requests\nbusy-after: 14s\nmin-delay: 10s", `busy-after: "14s" is no less than the 14 s that settle and min-delay leave of the 24 s that the pod can be held, so that it never releases anything: use less, or a longer grace period`},
		{"until: requests\nbusy-after: 18s", ""},
		{"until: requests\nbusy-after: 0s", ""},
		{"until: requests", ""},
		{"until: requests\nsettle: 1h\nbusy-after: 1h", `settle: "1h" takes all of the 24 s that the pod can be held, whatever its sessions do: use less`},
	} {
		t.Run(strings.ReplaceAll(tc.annotations, "\n", ", "), func(t *testing.T) {
			pod := podWithGrace(30, 30)
			pod.Annotations = make(map[string]string)
			for line := range strings.Lines(tc.annotations) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				pod.Annotations[lifecycle.AnnotationPrefix+name] = value
			}
			c := Config{Policy: lifecycle.Policy{Settle: 5 * time.Second, SettleMax: time.Minute}, Logger: slog.New(slog.DiscardHandler)}
			d := newDrain(pod, time.Now(), false, c)
			d.confirm(pod)
			var got []string
			for _, m := range d.toTell() {
				got = append(got, strings.TrimPrefix(m.String(), lifecycle.AnnotationPrefix))
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}
