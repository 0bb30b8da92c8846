package main

import (
	"fmt"
	"strings"
	"time"
)

// tell puts the restarts into a table, and what has to be reached of the product's into rows.
func (b *bench) tell(all []restart) error {
	for _, busy := range []bool{false, true} {
		t := table{
			Title:  fmt.Sprintf("Rolling restart, %d replicas, %d clients with streams of 6 to 12 s on new connections, grace period %d s:", replicas, streamClients.Concurrency, rolloutGrace),
			Header: []string{"hook", "runs", "streams cut / all", "refused", "Terminating, median", "longest", "of that after settle or the last session, median", "longest"},
		}
		if busy {
			t.Title = strings.TrimSuffix(t.Title, ":") + fmt.Sprintf("; beside them %d keep-alive clients with a request each %s:",
				keepAliveClients.Concurrency, span(keepAliveClients.Pause))
			t.Header = append(t.Header, "keep-alive requests failed / all")
		}
		for _, p := range preStops {
			var some []restart
			for _, r := range all {
				if r.preStop == p && r.busy == busy {
					some = append(some, r)
				}
			}
			if len(some) == 0 {
				continue
			}
			t.Lines = append(t.Lines, line(p, busy, some))
			if p.ours {
				b.judge(busy, some)
			}
		}
		if len(t.Lines) > 0 {
			b.report.Tables = append(b.report.Tables, t)
		}
	}
	return nil
}

// line is a kind of hook's in the table.
func line(p preStop, busy bool, some []restart) []string {
	var streams, keepAlives []string
	refused := 0
	for _, r := range some {
		streams = append(streams, fmt.Sprintf("%d/%d", r.streams.Cut, r.streams.Started))
		keepAlives = append(keepAlives, fmt.Sprintf("%d/%d", r.keepAlives.Cut+r.keepAlives.Refused, r.keepAlives.Started))
		refused += r.streams.Refused
	}
	terminating, excess := times(some, fate.terminating), times(some, fate.excess)
	l := []string{p.name, count(len(some)), strings.Join(streams, ", "), count(refused),
		span(terminating.median()), span(terminating.worst()), "-", "-"}
	if p.ours && !busy {
		l[6], l[7] = span(excess.median()), span(excess.worst())
	}
	if busy {
		l = append(l, strings.Join(keepAlives, ", "))
	}
	return l
}

// judge makes rows of the restarts with the product's hook.
func (b *bench) judge(busy bool, ours []restart) {
	lost, all, failed, requests := 0, 0, 0, 0
	for _, r := range ours {
		lost += r.streams.Cut + r.streams.Refused
		all += r.streams.Started
		failed += r.keepAlives.Cut + r.keepAlives.Refused
		requests += r.keepAlives.Started
	}
	what := fmt.Sprintf("rolling restart under load, %d runs: streams cut or refused", len(ours))
	terminating := times(ours, fate.terminating)
	if busy {
		budget := time.Duration(rolloutGrace-reserve) * time.Second
		b.add(
			atMost("the same with busy keep-alive clients: streams cut or refused", lost, 0, count).with(" of %d", all),
			row{What: "the same: keep-alive requests that failed", Measured: fmt.Sprintf("%d of %d", failed, requests)},
			row{What: fmt.Sprintf("the same: each pod in Terminating; expected: held to its deadline of %s", span(budget)),
				Measured: fmt.Sprintf("median %s, longest %s", span(terminating.median()), span(terminating.worst()))},
		)
		return
	}
	excess, release := times(ours, fate.excess), times(ours, fate.release)
	b.add(
		atMost(what, lost, 0, count).with(" of %d", all),
		atMost("the same: each pod gone after settle or its last session, the longest", excess.worst(), time.Second, span).
			with("; median %s; of that up to SIGTERM: median %s, longest %s", span(excess.median()), span(release.median()), span(release.worst())),
		row{What: "the same: each pod in Terminating", Measured: fmt.Sprintf("median %s, longest %s", span(terminating.median()), span(terminating.worst()))},
	)
}

// reserve is what the product keeps of rolloutGrace for the application.
const reserve = 10

// times are one of each pod.
func times(all []restart, of func(fate) time.Duration) sample {
	var s sample
	for _, r := range all {
		for _, f := range r.pods {
			s = append(s, of(f))
		}
	}
	return s
}

func (f fate) terminating() time.Duration { return f.gone.Sub(f.deleted) }

// free is when nothing held the pod any more: settle, from its withdrawal and from each new session after that, and its
// last session. Those are the server's own times.
func (f fate) free() time.Time {
	return latest(latest(f.withdrawn, f.told.Served.Began).Add(defaultSettle), f.told.Served.Ended)
}

func (f fate) excess() time.Duration  { return f.gone.Sub(f.free()) }
func (f fate) release() time.Duration { return f.told.At.Sub(f.free()) }
