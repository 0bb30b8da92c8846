package e2e

import (
	"testing"
	"time"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// These tests are what conndrain.io/until changes, and conndrain.io/notify.

// P6 to P9, under sessions tests of their own, come to something else under the other policies.
func TestP6ToP9UnderOtherPolicies(t *testing.T) {
	t.Parallel()
	const short, long = 30, 300 // seconds of grace, for what goes to the deadline and what does not
	// Each returns what has to hold of the traffic when the pod is gone, or nothing.
	webSocket := func(lasts time.Duration, completes bool) func(*drained) func() {
		return func(d *drained) func() {
			wait := d.outside(traffic.Client{
				Protocol: "websocket", Address: d.direct("websocket"), Count: 1, Transfer: traffic.Transfer{Bytes: 1 << 20, Duration: lasts},
			})
			d.served("websocket", 1)
			return func() {
				if got, err := wait(); err != nil || (got.Completed == 1) != completes {
					d.Errorf("the WebSocket's report is %+v, %v", got, err)
				}
			}
		}
	}
	idle := func(d *drained) func() {
		d.dial(d.c.Outside, d.direct("tcp"))
		d.tracked(d.pod.Status.PodIP, 1)
		return nil
	}
	vanished := func(address string) func(*drained) func() {
		return func(d *drained) func() {
			d.vanishing(address)
			return nil
		}
	}
	for _, test := range []struct {
		name, until string
		grace       int64
		open        func(*drained) func()
		reason      string
		words       []string
	}{
		{"P6 requests: a WebSocket is waited for", "requests", long, webSocket(20*time.Second, true), "Drained", nil},
		{"P6 withdrawn: it is the application's", "withdrawn", long, webSocket(time.Hour, false), "Drained", []string{"1 session left to the application"}},
		{"P7 requests: an endless stream is cut", "requests", short, webSocket(time.Hour, false), "DrainExpired", []string{"1 session cut"}},
		{"P7 withdrawn: it is the application's", "withdrawn", long, webSocket(time.Hour, false), "Drained", []string{"1 session left to the application"}},
		{"P8 requests: an idle session is let go after quiet", "requests", long, idle, "Drained", []string{"No request was in flight on the 1 session"}},
		{"P8 withdrawn: it is the application's", "withdrawn", long, idle, "Drained", []string{"1 session left to the application"}},
		{"P9 requests: a client that has vanished, after quiet", "requests", long, vanished("10.200.0.95"), "Drained", []string{"No request was in flight on the 1 session"}},
		{"P9 withdrawn: it is the application's", "withdrawn", long, vanished("10.200.0.94"), "Drained", []string{"1 session left to the application"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := drainCase(t, server{grace: test.grace, annotations: map[string]string{"conndrain.io/until": test.until}})
			check := test.open(d)
			d.delete()
			d.event(d.pod, test.reason, test.words...)
			d.ends()
			if check != nil {
				check()
			}
		})
	}
}

// Busy clients that keep their connections do not hold a pod to its deadline, and a stream beside them ends before it.
func TestUntilRequests(t *testing.T) {
	t.Parallel()
	for _, until := range []string{"requests", "requests-strict", "8080=requests,7000=sessions"} {
		t.Run(until, func(t *testing.T) {
			t.Parallel()
			d := replacedCase(t, server{grace: 300, annotations: map[string]string{"conndrain.io/until": until}})
			const clients = 5
			kept := d.outside(traffic.Client{
				Protocol: "keepalive", Address: d.nodePortOf(d.service, "n2", "http"), Count: 1500, Concurrency: clients,
				Transfer: traffic.Transfer{Bytes: 1 << 10}, Pause: 200 * time.Millisecond,
			})
			d.served("keepalive", clients)
			stream := d.outside(traffic.Client{
				Protocol: "http", Address: d.nodePortOf(d.service, "n2", "http"), Count: 1, Transfer: traffic.Transfer{Bytes: 1 << 20, Duration: 15 * time.Second},
			})
			d.served("http", clients+1)
			d.delete()
			d.event(d.pod, "Drained", "No request was in flight on the")
			if got, err := stream(); err != nil || got.Completed != 1 {
				t.Errorf("the stream's report is %+v, %v", got, err)
			}
			if took := d.ends(); took > 100*time.Second { // the time is up after 290 s
				t.Errorf("the pod went %s after its deletion", took)
			}
			// One of each connection at the most: what is on its way between the hook's end and SIGTERM.
			if got, err := kept(); err != nil || got.Cut > clients || got.Completed == 0 {
				t.Errorf("the kept connections' report is %+v, %v", got, err)
			}
		})
	}
}

// An application that is told of the drain ends its connections itself, also those that nobody can see into.
func TestNotify(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"keepalive", "http2", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			d := replacedCase(t, server{grace: 300, annotations: map[string]string{"conndrain.io/notify": "http://:8080" + traffic.QuiescePath}})
			wait := d.outside(traffic.Client{
				Protocol: protocol, Address: d.nodePortOf(d.service, "n2", protocol), Count: 300, Concurrency: 3,
				Transfer: traffic.Transfer{Bytes: 1 << 10}, Pause: 100 * time.Millisecond,
			})
			d.served(protocol, 3)
			d.delete()
			d.event(d.pod, "Notified")
			// An application may end them before the helper has counted them once.
			d.event(d.pod, "Drained", "released")
			d.ends()
			if got, err := wait(); err != nil || got.Cut > 0 || got.Completed == 0 {
				t.Errorf("report %+v, %v", got, err)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		d := drainCase(t, server{grace: 300, annotations: map[string]string{"conndrain.io/notify": "http://:9/"}})
		d.delete()
		d.event(d.pod, "NotifyFailed", "POST http://:9/", "port 9")
		d.event(d.pod, "Drained")
		d.ends()
	})
}
