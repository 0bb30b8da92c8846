package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conndrain/conndrain/e2e/product"
	"github.com/conndrain/conndrain/e2e/traffic"
)

// What a rolling restart is made under, as facts about what people lose today were.
const (
	replicas     = 3
	rolloutGrace = 60 // seconds
	warmUp       = 12 * time.Second
)

var (
	streamClients    = traffic.Client{Protocol: "http", Concurrency: 60, Transfer: traffic.Transfer{Bytes: 100 << 10, Duration: 6 * time.Second}, Spread: 6 * time.Second}
	keepAliveClients = traffic.Client{Protocol: "keepalive", Concurrency: 20, Transfer: traffic.Transfer{Bytes: 1 << 10}, Pause: 200 * time.Millisecond}
)

// preStop is a kind of hook that a Deployment has.
type preStop struct {
	name  string
	sleep int64 // seconds
	ours  bool
}

var preStops = []preStop{
	{name: "none"}, {name: "sleep 5", sleep: 5}, {name: "sleep 15", sleep: 15}, {name: "sleep 30", sleep: 30},
	{name: "conndrain", ours: true},
}

func hookNames() []string {
	var names []string
	for _, p := range preStops {
		names = append(names, p.name)
	}
	return names
}

// rollouts restarts a Deployment under load, with each kind of hook, without and with busy keep-alive clients.
func rollouts(ctx context.Context, b *bench) error {
	var all []restart
	for _, busy := range []bool{false, true} {
		for _, p := range preStops {
			if !slices.Contains(b.chosenHooks(), p.name) {
				continue
			}
			some, err := b.restarts(ctx, p, busy)
			all = append(all, some...)
			if err != nil {
				return errors.Join(fmt.Errorf("hook %s: %w", p.name, err), b.tell(all))
			}
		}
	}
	return b.tell(all)
}

// restart is one rolling restart.
type restart struct {
	preStop    preStop
	busy       bool // with keep-alive clients
	streams    traffic.Report
	keepAlives traffic.Report
	pods       []fate // those that it ended
}

// restarts makes a Deployment and restarts it some times.
func (b *bench) restarts(ctx context.Context, p preStop, busy bool) (all []restart, err error) {
	const namespace = "rollout"
	remove, err := b.site.space(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	clients, err := b.clientPod(ctx, namespace)
	if err != nil {
		return nil, err
	}
	address, err := b.deploy(ctx, namespace, p)
	if err != nil {
		return nil, err
	}
	known, err := b.site.follow(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer known.end()
	n := b.others
	if p.ours {
		n = b.runs
	}
	for i := range n {
		b.say("rolling restart %d of %d, hook %s, keep-alive clients: %t", i+1, n, p.name, busy)
		r := restart{preStop: p, busy: busy}
		if err := b.restart(ctx, namespace, clients, address, known, &r); err != nil {
			return all, err
		}
		b.say("%d of %d streams cut, %d refused", r.streams.Cut, r.streams.Started, r.streams.Refused)
		all = append(all, r)
	}
	return all, nil
}

// deploy makes the Deployment and its Service, and blocks until it is whole. It returns the Service's address.
func (b *bench) deploy(ctx context.Context, namespace string, p preStop) (string, error) {
	service, err := b.site.service(ctx, namespace)
	if err != nil {
		return "", err
	}
	labels := map[string]string{"app": app}
	spec := serverSpec(rolloutGrace)
	spec.Containers[0].ReadinessProbe.PeriodSeconds = 1
	switch {
	case p.ours:
		product.AddHook(&spec)
	case p.sleep > 0:
		spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: p.sleep}}}
	}
	n := int32(replicas)
	_, err = b.site.Client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("make Deployment: %w", err)
	}
	return net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(traffic.DefaultPorts.HTTP)), b.whole(ctx, namespace)
}

// whole blocks until the Deployment has all of its pods, of its present template and routed to, and no other one is left.
func (b *bench) whole(ctx context.Context, namespace string) error {
	return await(ctx, "Deployment is whole", func(ctx context.Context) error {
		d, err := b.site.Client.AppsV1().Deployments(namespace).Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get Deployment: %w", err)
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != replicas || d.Status.AvailableReplicas != replicas ||
			d.Status.Replicas != replicas {
			return fmt.Errorf("%d of %d pods are new, %d are available", d.Status.UpdatedReplicas, d.Status.Replicas, d.Status.AvailableReplicas)
		}
		n, err := b.site.routed(ctx, namespace)
		if err == nil && n != replicas {
			err = fmt.Errorf("%d pods are routed to", n)
		}
		return err
	})
}

// restart makes one rolling restart under load and blocks until the old pods are gone.
func (b *bench) restart(ctx context.Context, namespace string, clients corev1.Pod, address string, known *chronicle, r *restart) error {
	var old []types.UID
	for uid, f := range known.all() {
		if f.gone.IsZero() && f.name != clients.Name {
			old = append(old, uid)
		}
	}
	if len(old) != replicas {
		return fmt.Errorf("there are %d pods before the restart", len(old))
	}
	load := streamClients
	load.Address = address
	streams, err := b.startClient(ctx, clients, load)
	if err != nil {
		return err
	}
	defer streams.kill()
	var keepAlives *client
	if r.busy {
		load = keepAliveClients
		load.Address = address
		if keepAlives, err = b.startClient(ctx, clients, load); err != nil {
			return err
		}
		defer keepAlives.kill()
	}
	if err := pause(ctx, warmUp); err != nil {
		return err
	}
	cmd := b.site.Outside.Command(ctx, filepath.Join(b.site.Bin(), "kubectl"), "--kubeconfig", b.site.Kubeconfig(),
		"--namespace", namespace, "rollout", "restart", "deployment/"+app)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("rollout restart: %w: %s", err, out)
	}
	if r.pods, err = known.gone(ctx, old); err != nil {
		return err
	}
	if err := b.whole(ctx, namespace); err != nil {
		return err
	}
	if r.streams, err = streams.stop(); err != nil {
		return err
	}
	if keepAlives != nil {
		r.keepAlives, err = keepAlives.stop()
	}
	return err
}
