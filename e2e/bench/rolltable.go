package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// tell puts the restarts of a contest into a table, and what has to be reached into rows.
func (b *bench) tell(c contest, all []restart) {
	t := table{
		Title:  fmt.Sprintf("Rolling restart, %d replicas, %d clients with %s, grace period %d s:", replicas, c.load.streams.Concurrency, c.load.name, rolloutGrace),
		Header: []string{"hook", "runs", "streams cut / all", "refused", "Terminating, median", "longest"},
	}
	if c.excess {
		t.Header = append(t.Header, "of that after settle or the last session, median", "longest")
	}
	if c.load.beside != nil {
		t.Title = strings.TrimSuffix(t.Title, ":") + fmt.Sprintf("; beside them %d clients that keep their connections, with a request each %s:",
			c.load.beside.Concurrency, span(c.load.beside.Pause))
		t.Header = append(t.Header, "of these requests failed / all")
	}
	var judged []restart
	for _, p := range c.hooks {
		var some []restart
		for _, r := range all {
			if r.preStop.name == p.name {
				some = append(some, r)
			}
		}
		if len(some) == 0 {
			continue
		}
		t.Lines = append(t.Lines, c.line(p, some))
		if p.judged {
			judged = append(judged, some...)
		}
	}
	if len(judged) > 0 {
		c.judge(b, judged)
	}
	if len(t.Lines) > 0 {
		b.report.Tables = append(b.report.Tables, t)
	}
}

// line is a kind of hook's in the table.
func (c contest) line(p preStop, some []restart) []string {
	var streams, beside []string
	refused := 0
	for _, r := range some {
		streams = append(streams, fmt.Sprintf("%d/%d", r.streams.Cut, r.streams.Started))
		beside = append(beside, fmt.Sprintf("%d/%d", r.beside.Cut+r.beside.Refused, r.beside.Started))
		refused += r.streams.Refused
	}
	terminating, excess := times(some, fate.terminating), times(some, fate.excess)
	l := []string{p.name, count(len(some)), strings.Join(streams, ", "), count(refused), span(terminating.median()), span(terminating.worst())}
	switch {
	case c.excess && p.ours:
		l = append(l, span(excess.median()), span(excess.worst()))
	case c.excess:
		l = append(l, "-", "-")
	}
	if c.load.beside != nil {
		l = append(l, strings.Join(beside, ", "))
	}
	return l
}

// lost counts what was lost in the restarts, and all that there was.
func lost(some []restart, of func(restart) traffic.Report) (lost, all int) {
	for _, r := range some {
		report := of(r)
		lost += report.Cut + report.Refused
		all += report.Started
	}
	return lost, all
}

func ofStreams(r restart) traffic.Report { return r.streams }
func ofBeside(r restart) traffic.Report  { return r.beside }

// judgeSessions makes rows of restarts under the default policy without other clients.
func judgeSessions(b *bench, ours []restart) {
	cut, all := lost(ours, ofStreams)
	excess, release, terminating := times(ours, fate.excess), times(ours, fate.release), times(ours, fate.terminating)
	b.add(
		atMost(fmt.Sprintf("rolling restart under load, %d runs: streams cut or refused", len(ours)), cut, 0, count).with(" of %d", all),
		atMost("the same: each pod gone after settle or its last session, the longest", excess.worst(), time.Second, span).
			with("; median %s; of that up to SIGTERM: median %s, longest %s", span(excess.median()), span(release.median()), span(release.worst())),
		row{What: "the same: each pod in Terminating", Measured: fmt.Sprintf("median %s, longest %s", span(terminating.median()), span(terminating.worst()))},
	)
}

// judgeBusySessions makes rows of those beside busy keep-alive clients, which hold each pod to its deadline.
func judgeBusySessions(b *bench, ours []restart) {
	cut, all := lost(ours, ofStreams)
	failed, requests := lost(ours, ofBeside)
	terminating := times(ours, fate.terminating)
	budget := time.Duration(rolloutGrace-reserve) * time.Second
	b.add(
		atMost("the same with busy keep-alive clients: streams cut or refused", cut, 0, count).with(" of %d", all),
		row{What: "the same: keep-alive requests that failed", Measured: fmt.Sprintf("%d of %d", failed, requests)},
		row{What: fmt.Sprintf("the same: each pod in Terminating; expected: held to its deadline of %s", span(budget)),
			Measured: fmt.Sprintf("median %s, longest %s", span(terminating.median()), span(terminating.worst()))},
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

// free is when nothing but short requests held the pod any more: settle, from its withdrawal and from each new stream after
// that, and its last stream. Those are the server's own times.
func (f fate) free() time.Time {
	return latest(latest(f.withdrawn, f.told.Served.StreamBegan).Add(defaultSettle), f.told.Served.StreamEnded)
}

func (f fate) excess() time.Duration  { return f.gone.Sub(f.free()) }
func (f fate) release() time.Duration { return f.told.At.Sub(f.free()) }
