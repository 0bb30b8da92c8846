package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/conndrain/conndrain/e2e/traffic"
)

const (
	untilAnnotation  = "conndrain.io/until"
	notifyAnnotation = "conndrain.io/notify"
)

// told lets the traffic server hear of the drain.
var told = map[string]string{notifyAnnotation: fmt.Sprintf("http://:%d%s", traffic.DefaultPorts.HTTP, traffic.QuiescePath)}

// policies are the product's, beside sleep. Those that tell the application of the drain do it as notify says; nil is none.
func policies(notify map[string]string) []preStop {
	ours := func(until string, judged bool) preStop {
		annotations := map[string]string{untilAnnotation: until}
		maps.Copy(annotations, notify)
		name := "until " + until
		if len(notify) > 0 {
			name += " and notify"
		}
		return preStop{name: name, ours: true, annotations: annotations, judged: judged}
	}
	return []preStop{
		ours("requests", true), ours("requests-strict", false), ours("sessions", false), ours("withdrawn", false),
		{name: "sleep 15", sleep: 15}, {name: "sleep 30", sleep: 30},
	}
}

// untilRequests restarts a Deployment under load with each policy, beside clients that keep their connections: HTTP/1.1,
// and HTTP/2 and gRPC, into which nobody can see and of which the application is told to end them.
func untilRequests(ctx context.Context, b *bench) error {
	long := streamClients
	long.Transfer.Duration, long.Spread = 10*time.Second, 35*time.Second
	kept := func(protocol string) load {
		streams := streamClients
		streams.Protocol = protocol
		return load{
			name: "streams of 6 to 12 s by " + protocol + " on connections that are kept", streams: streams, beside: shortRequests(protocol),
		}
	}
	return b.contests(ctx, []contest{
		{load{"streams of 6 to 12 s on new connections", streamClients, shortRequests("keepalive")}, policies(nil), true, judgeRequests},
		{load{"streams of 10 to 45 s on new connections", long, shortRequests("keepalive")}, policies(nil), true, judgeRequests},
		{kept("http2"), policies(told), true, judgeRequests},
		{kept("grpc"), policies(told), true, judgeRequests},
	})
}

const (
	// failedIn is in how many short requests allowedFailures may fail: those that begin at the moment of the end.
	failedIn        = 3000
	allowedFailures = 2
	// allowedExcess is how long a pod may be there after settle and its last stream.
	allowedExcess = 3 * time.Second
)

// judgeRequests makes rows of the restarts with the policy that this is about.
func judgeRequests(b *bench, ours []restart) {
	what := fmt.Sprintf("%s, %s, %d runs", ours[0].preStop.name, ours[0].streams.Protocol, len(ours))
	cut, all := lost(ours, ofStreams)
	failed, requests := lost(ours, ofBeside)
	excess, terminating := times(ours, fate.excess), times(ours, fate.terminating)
	b.add(
		atMost(what+": streams cut or refused", cut, 0, count).with(" of %d", all),
		atMost(fmt.Sprintf("the same: short requests that failed, of %d", failedIn), float64(failed)*failedIn/float64(max(1, requests)), allowedFailures,
			func(n float64) string { return fmt.Sprintf("%.1f", n) }).with(": %d of %d", failed, requests),
		atMost("the same: each pod gone after settle or its last stream, the longest", excess.worst(), allowedExcess, span).
			with("; median %s", span(excess.median())),
		row{What: "the same: each pod in Terminating", Measured: fmt.Sprintf("median %s, longest %s", span(terminating.median()), span(terminating.worst()))},
	)
}
