package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/conndrain/conndrain/e2e/product"
)

const (
	crowded     = "crowded" // a Node that no kubelet stands for
	onCrowded   = 250       // pods of it
	realOnes    = 10        // of those, how many are real and drain
	realTraffic = 10        // sessions of each
)

// memory measures the helper of a node with 250 pods of which 10 drain, and shows that it subscribes to nothing while
// nothing drains.
//
// No kubelet can be kept from running what is bound to its node. So the 250 are bound to a Node without a kubelet, and
// a second helper, on the busy node but for its ports, is told that it serves that one: its watch sees 250 pods that run.
// Ten of them have the addresses of real pods of the busy node, whose hooks ask this helper, and whose sessions are in
// that node's table.
func memory(ctx context.Context, b *bench) (err error) {
	const namespace = "memory"
	remove, err := b.site.space(ctx, namespace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	nodes := b.site.Client.CoreV1().Nodes()
	// without the label of an operating system no DaemonSet wants it
	if _, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: crowded}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make Node: %w", err)
	}
	defer func() {
		err = errors.Join(err, nodes.Delete(context.WithoutCancel(ctx), crowded, metav1.DeleteOptions{}))
	}()
	pods, err := b.hooked(ctx, namespace, realOnes, func(pod *corev1.Pod) {
		main := &pod.Spec.Containers[0]
		main.Env = append(main.Env, corev1.EnvVar{Name: "CONNDRAIN_NODE", Value: fmt.Sprintf("$(HOST_IP):%d", crowdedPort)})
	})
	if err != nil {
		return err
	}
	held := make([]crowd, len(pods))
	for i, pod := range pods {
		if held[i], err = b.site.connect(ctx, pod, realTraffic); err != nil {
			return err
		}
		defer held[i].abandon() //nolint:revive // all of them stay open until the end
	}
	b.say("making %d pods without containers", onCrowded)
	objects, err := b.populate(ctx, namespace, pods)
	if err != nil {
		return err
	}
	h, err := b.crowdedHelper(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.site.remove(context.WithoutCancel(ctx), h.pod)) }()

	idle, err := h.look()
	if err != nil {
		return err
	}
	// first those that the helper asks the API for when a hook of theirs comes
	for _, some := range [][]corev1.Pod{objects[:realOnes], pods} {
		if err := b.removeAll(ctx, some); err != nil {
			return err
		}
	}
	if err := h.awaitDraining(ctx, realOnes); err != nil {
		return err
	}
	b.say("%d drain", realOnes)
	if err := pause(ctx, 15*time.Second); err != nil { // a poll of each hook and some sweeps
		return err
	}
	busy, err := h.look()
	if err != nil {
		return err
	}
	if _, err := endAll(ctx, held, time.Second); err != nil {
		return err
	}
	var after look
	err = await(ctx, "nothing drains and nothing is subscribed", func(ctx context.Context) error {
		left, err := h.metric(ctx, draining)
		if err != nil {
			return err
		}
		if after, err = h.look(); err == nil && (left > 0 || after.subscribed > 0) {
			err = fmt.Errorf("%.0f pods drain, %d sockets are subscribed", left, after.subscribed)
		}
		return err
	})
	if err != nil {
		return err
	}
	b.add(
		atMost(fmt.Sprintf("node helper, peak RSS, %d pods on the node, %d draining", onCrowded, realOnes), max(busy.peak, after.peak), 40e6, megabytes).
			with("; resident %s before, %s while they drain, %s after", megabytes(idle.now), megabytes(busy.now), megabytes(after.now)),
		holds("netlink sockets of the helper that hear of connection tracking", "0 while nothing drains",
			fmt.Sprintf("%d before, %d while %d drain, %d after", idle.subscribed, busy.subscribed, realOnes, after.subscribed),
			idle.subscribed == 0 && busy.subscribed > 0 && after.subscribed == 0),
	)
	return nil
}

// look is a helper at one moment.
type look struct {
	footprint
	subscribed int
}

func (h helper) look() (look, error) {
	m, err := h.process.memory()
	if err != nil {
		return look{}, err
	}
	n, _, err := h.process.subscriptions()
	return look{m, n}, err
}

const crowdedPort, crowdedMetricsPort = 10950, 10951

// crowdedHelper starts a second helper on the busy node, which serves the crowded one, and blocks until it is ready.
func (b *bench) crowdedHelper(ctx context.Context) (helper, error) {
	set, err := b.site.Client.AppsV1().DaemonSets(product.Namespace).Get(ctx, product.Name, metav1.GetOptions{})
	if err != nil {
		return helper{}, fmt.Errorf("get DaemonSet: %w", err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: crowded}, Spec: set.Spec.Template.Spec}
	pod.Spec.NodeName = busy
	main := &pod.Spec.Containers[0]
	main.Args = append(main.Args, fmt.Sprintf("--api-port=%d", crowdedPort), fmt.Sprintf("--metrics-port=%d", crowdedMetricsPort))
	main.Ports, main.LivenessProbe = nil, nil
	main.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt(crowdedMetricsPort)},
	}}
	for i, e := range main.Env {
		if e.Name == "NODE_NAME" {
			main.Env[i] = corev1.EnvVar{Name: e.Name, Value: crowded}
		}
	}
	pods := b.site.Client.CoreV1().Pods(product.Namespace)
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return helper{}, fmt.Errorf("make helper: %w", err)
	}
	var running *corev1.Pod
	err = await(ctx, "helper of "+crowded+" is ready", func(ctx context.Context) (err error) {
		if running, err = pods.Get(ctx, crowded, metav1.GetOptions{}); err == nil && !isReady(*running) {
			err = fmt.Errorf("pod is %s", running.Status.Phase)
		}
		return err
	})
	if err != nil {
		return helper{}, err
	}
	return b.site.helperOf(*running, crowdedMetricsPort)
}
