package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
)

// maxRequests is what a drain may ask of the API server on average: is it a deletion, where is it routed, what is said.
const maxRequests = 8

// burst drains one pod, to count what it asks of the API server, and then all pods of a node at once.
func burst(ctx context.Context, b *bench) error {
	one, err := b.drainAtOnce(ctx, "one", 1, 1, 5*time.Second)
	if err != nil {
		return err
	}
	b.add(atMost("API requests of one drain", one.requests.sum(), maxRequests, count).with(": %s", one.requests))

	all, err := b.drainAtOnce(ctx, "burst", b.burst, b.sessions, time.Minute)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d pods of one node draining at once, %d sessions", b.burst, b.burst*b.sessions)
	right := all.cut == 0 && all.early == 0
	b.add(
		holds(what, "all right", fmt.Sprintf("%d cut, %d released before their last session's end", all.cut, all.early), right),
		row{What: "the same: last session's end (or settle) to SIGTERM", Measured: fmt.Sprintf("p50 %s, p99 %s, the longest %s",
			span(all.took.median()), span(all.took.percentile(99)), span(all.took.worst()))},
		all.delays.row(),
		atMost("the same: CPU time of the helper for a pod", all.cpu/time.Duration(b.burst), time.Second, span),
		row{What: "the same: memory of the helper", Measured: fmt.Sprintf("%s, at most %s", megabytes(all.memory.now), megabytes(all.memory.peak))},
		atMost(fmt.Sprintf("API requests for a drain, of %d at once", b.burst), float64(all.requests.sum())/float64(b.burst), maxRequests,
			func(n float64) string { return fmt.Sprintf("%.2f", n) }).with(": %s", all.requests),
		atMost("lists of all slices of the cluster, in both", one.requests["list "+everySlice]+one.requests["watch "+everySlice]+
			all.requests["list "+everySlice]+all.requests["watch "+everySlice], 0, count),
	)
	return nil
}

// burstResult is what came of pods that drained at once.
type burstResult struct {
	cut, early int
	took       sample // from each pod's last session's end, or its settle, to SIGTERM
	cpu        time.Duration
	memory     footprint
	requests   requests
	delays     delays
}

// drainAtOnce starts n pods with sessions each, deletes them all, waits until all of them drain, lets the sessions end
// within a time, at random, and blocks until the pods are gone.
func (b *bench) drainAtOnce(ctx context.Context, namespace string, n, sessions int, within time.Duration) (r burstResult, err error) {
	remove, err := b.site.space(ctx, namespace)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	pods, err := b.hooked(ctx, namespace, n, nil)
	if err != nil {
		return r, err
	}
	b.say("opening %d sessions", n*sessions)
	held := make([]crowd, n)
	for i, pod := range pods {
		if held[i], err = b.site.connect(ctx, pod, sessions); err != nil {
			return r, err
		}
		defer held[i].abandon() //nolint:revive // all of them stay open until the end
	}
	known, err := b.site.follow(ctx, namespace)
	if err != nil {
		return r, err
	}
	defer known.end()
	helper, err := b.site.helperOn(ctx, busy)
	if err != nil {
		return r, err
	}
	_, mark, err := b.site.settledRequests(ctx, 0)
	if err != nil {
		return r, err
	}
	before, err := helper.process.cpu()
	if err != nil {
		return r, err
	}
	told, err := helper.delays(ctx)
	if err != nil {
		return r, err
	}

	b.say("deleting %d pods", n)
	if err := b.removeAll(ctx, pods); err != nil {
		return r, err
	}
	if err := helper.awaitDraining(ctx, n); err != nil {
		return r, err
	}
	b.say("all drain; their sessions end within %s", within)
	last, err := endAll(ctx, held, within)
	if err != nil {
		return r, err
	}
	fates, err := known.gone(ctx, uidsOf(pods))
	if err != nil {
		return r, err
	}
	after, err := helper.process.cpu()
	if err != nil {
		return r, err
	}
	r.cpu = after - before
	if r.delays, err = helper.delays(ctx); err != nil {
		return r, err
	}
	r.delays = r.delays.since(told)
	if r.memory, err = helper.process.memory(); err != nil {
		return r, err
	}
	if r.requests, _, err = b.site.settledRequests(ctx, mark); err != nil {
		return r, err
	}
	for i, f := range fates {
		r.cut += held[i].cut()
		if f.told.At.Before(last[i]) {
			r.early++
		}
		r.took = append(r.took, f.told.At.Sub(latest(last[i], f.withdrawn.Add(defaultSettle))))
	}
	return r, nil
}

// defaultSettle is the product's.
const defaultSettle = 5 * time.Second

func (b *bench) removeAll(ctx context.Context, pods []corev1.Pod) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, pod := range pods {
		g.Go(func() error { return b.site.remove(ctx, pod) })
	}
	return g.Wait()
}

// endAll ends every session, each at a moment of its own within the time, and returns when the last of each crowd ended.
func endAll(ctx context.Context, held []crowd, within time.Duration) ([]time.Time, error) {
	random := rand.New(rand.NewPCG(3, 4))
	last := make([]time.Time, len(held))
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for i, c := range held {
		for _, o := range c {
			moment := time.Duration(random.Int64N(int64(within)))
			g.Go(func() error {
				if err := pause(ctx, moment); err != nil {
					return err
				}
				ended, err := o.end(ctx)
				mu.Lock()
				defer mu.Unlock()
				last[i] = latest(last[i], ended)
				return err
			})
		}
	}
	return last, g.Wait()
}

func latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
