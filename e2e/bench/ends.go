package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const settleAnnotation = "conndrain.io/settle"

// ends measures from the end of a pod's last session to SIGTERM in its container. The session is older than the drain, and
// settle has passed when it ends; pods are drained one at a time.
func ends(ctx context.Context, b *bench) (err error) {
	const namespace = "ends"
	remove, err := b.site.space(ctx, namespace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	pods, err := b.hooked(ctx, namespace, b.ends, func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{settleAnnotation: b.settle.String()}
	})
	if err != nil {
		return err
	}
	held := make([]crowd, len(pods))
	for i, pod := range pods {
		if held[i], err = b.site.connect(ctx, pod, 1); err != nil {
			return err
		}
		defer held[i].abandon() //nolint:revive // all of them stay open until the end
	}
	known, err := b.site.follow(ctx, namespace)
	if err != nil {
		return err
	}
	defer known.end()

	helper, err := b.site.helperOn(ctx, busy)
	if err != nil {
		return err
	}
	told, err := helper.delays(ctx)
	if err != nil {
		return err
	}
	var took sample
	early := 0
	// the end must not follow the rhythm of anybody's looks
	random := rand.New(rand.NewPCG(1, 2))
	for i, pod := range pods {
		d, err := b.end(ctx, known, pod, held[i], time.Duration(random.Int64N(int64(time.Second))))
		if err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		if d < 0 {
			early++
		}
		took = append(took, d)
		b.say("%d of %d: SIGTERM %s after the last session's end", i+1, len(pods), span(d))
	}
	now, err := helper.delays(ctx)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("last session's end to SIGTERM, settle (%s) passed, session older than the drain, %d drains one at a time", b.settle, len(took))
	b.add(
		atMost(what+": p50", took.median(), 150*time.Millisecond, span),
		atMost("the same: p99", took.percentile(99), 500*time.Millisecond, span).with("; the longest %s", span(took.worst())),
		now.since(told).row(),
		atMost("the same: released before the last session's end", early, 0, count),
	)
	return nil
}

// end deletes a pod, ends its session at a moment after settle, and returns how long after that the container got SIGTERM;
// it is less than nothing where that came first. It blocks until the pod is gone.
func (b *bench) end(ctx context.Context, known *chronicle, pod corev1.Pod, held crowd, moment time.Duration) (time.Duration, error) {
	helper, err := b.site.helperOn(ctx, busy)
	if err != nil {
		return 0, err
	}
	if err := b.site.remove(ctx, pod); err != nil {
		return 0, err
	}
	if err := helper.awaitDraining(ctx, 1); err != nil {
		return 0, err
	}
	// the withdrawal, which settle runs from, was before
	if err := pause(ctx, b.settle+200*time.Millisecond+moment); err != nil {
		return 0, err
	}
	ended, err := held[0].end(ctx)
	if err != nil {
		return 0, err
	}
	fates, err := known.gone(ctx, []types.UID{pod.UID})
	if err != nil {
		return 0, err
	}
	return fates[0].told.At.Sub(ended), nil
}
