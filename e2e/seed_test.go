package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// The experiment that this project began with, as it stands without it: a download that a pod serves while the pod is
// deleted survives when somebody guessed a preStop sleep that is long enough, and is cut when there is none.
func TestPreStopSleepKeepsDownload(t *testing.T) {
	t.Parallel()
	const protocol = "http"
	transfer := traffic.Transfer{Bytes: 4 << 20, Duration: 8 * time.Second}
	for _, test := range []struct {
		name    string
		preStop int64
		want    traffic.Report
	}{
		{"sleep longer than the download", 15, traffic.Report{Started: 1, Completed: 1}},
		{"no hook", 0, traffic.Report{Started: 1, Cut: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := sharedSpace(t)
			pod, service := s.serve(server{name: "web", node: "n1", onTerm: "exit", preStop: test.preStop, grace: 60})
			s.download("client", "n2", traffic.Client{
				Protocol: protocol, Address: addressOf(service.Spec.ClusterIP, protocol), Transfer: transfer, Count: 1,
			})
			before := s.established("n1", pod.Status.PodIP, portOf(protocol))

			s.kubectl("delete", "pod", pod.Name, "--wait=false")
			if test.preStop > 0 {
				s.eventually("endpoint is withdrawn", func(ctx context.Context) error {
					got, err := s.conditions(ctx, "web", pod)
					if err != nil {
						return err
					}
					if want := (conditions{ready: false, serving: true, terminating: true}); got != want {
						return fmt.Errorf("conditions are %+v, want %+v", got, want)
					}
					return nil
				})
				after := s.established("n1", pod.Status.PodIP, portOf(protocol))
				if a, b := tuple(before), tuple(after); a != b {
					t.Errorf("session of the terminating pod is %q, want the same as before, %q", b, a)
				}
			}

			got := s.report("client")
			if got.Completed == 1 && got.Bytes != transfer.Bytes {
				t.Errorf("%d bytes came of %d", got.Bytes, transfer.Bytes)
			}
			test.want.Protocol, test.want.Bytes, test.want.Errors = protocol, got.Bytes, got.Errors
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("client's report (-want +got):\n%s", diff)
			}
		})
	}
}

// The same experiment with our hook in the place of the sleep: nobody guessed anything, the download is completed, its pod
// ends right after it, people can read why it stayed, and it is counted.
func TestConndrainKeepsDownload(t *testing.T) {
	t.Parallel()
	const protocol = "http"
	transfer := traffic.Transfer{Bytes: 4 << 20, Duration: 12 * time.Second}
	s := productSpace(t)
	pod, service := s.serve(server{name: "web", node: "n1", onTerm: "exit", hook: true, bare: true, quiet: true, grace: 300})
	const released = `conndrain_drain_duration_seconds_count{reason="Drained"}`
	before := s.metric("n1", released)
	s.download("client", "n2", traffic.Client{
		Protocol: protocol, Address: addressOf(service.Spec.ClusterIP, protocol), Transfer: transfer, Count: 1,
	})
	s.established("n1", pod.Status.PodIP, portOf(protocol))

	s.kubectl("delete", "pod", pod.Name, "--wait=false")
	s.event(pod, "Draining", sessions(1))
	if described := s.kubectl("describe", "pod", pod.Name); !hasAll(described, []string{"Terminating", "Draining", sessions(1)}) {
		t.Errorf("kubectl describe does not tell why the pod is there:\n%s", described)
	}
	want := traffic.Report{Protocol: protocol, Started: 1, Completed: 1, Bytes: transfer.Bytes}
	if diff := cmp.Diff(want, s.report("client")); diff != "" {
		t.Errorf("client's report (-want +got):\n%s", diff)
	}
	completed := time.Now()
	s.gone(pod)
	after := time.Since(completed)
	t.Logf("pod went %s after its client's end was seen", after)
	if after > 5*time.Second {
		t.Errorf("pod went %s after its client's end was seen, want a second", after)
	}
	s.event(pod, "Drained", "The last session has ended")
	if n := s.metric("n1", released); n < before+1 {
		t.Errorf("%v drains ended as Drained, %v before", n, before)
	}
}

// tuple is what stays of an entry as long as its session lives: no timeout, state or flags.
func tuple(e entry) string {
	var fields []string
	for f := range strings.FieldsSeq(string(e)) {
		if name, _, ok := strings.Cut(f, "="); ok && (name == "src" || name == "dst" || name == "sport" || name == "dport") {
			fields = append(fields, f)
		}
	}
	return strings.Join(fields, " ")
}
