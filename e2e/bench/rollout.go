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

// load is what clients do meanwhile.
type load struct {
	name    string // of the title of its table
	streams traffic.Client
	beside  *traffic.Client // short requests on connections that are kept; nil: none
}

// preStop is a kind of hook that a Deployment has.
type preStop struct {
	name        string
	sleep       int64             // seconds
	ours        bool              // the product's
	annotations map[string]string // of the pods
	judged      bool              // what has to be reached is asked of this one
}

// contest compares hooks under one load.
type contest struct {
	load  load
	hooks []preStop
	// excess says that nothing holds a pod of ours beyond settle and the last stream.
	excess bool
	// judge makes rows of the restarts with the hooks that are judged.
	judge func(*bench, []restart)
}

var streamClients = traffic.Client{Protocol: "http", Concurrency: 60, Transfer: traffic.Transfer{Bytes: 100 << 10, Duration: 6 * time.Second}, Spread: 6 * time.Second}

// shortRequests are those of clients that keep their connections.
func shortRequests(protocol string) *traffic.Client {
	return &traffic.Client{Protocol: protocol, Concurrency: 20, Transfer: traffic.Transfer{Bytes: 1 << 10}, Pause: 200 * time.Millisecond}
}

var preStops = []preStop{
	{name: "none"}, {name: "sleep 5", sleep: 5}, {name: "sleep 15", sleep: 15}, {name: "sleep 30", sleep: 30},
	{name: "conndrain", ours: true, judged: true},
}

// rollouts restarts a Deployment under load, with each kind of hook, without and with busy keep-alive clients.
func rollouts(ctx context.Context, b *bench) error {
	return b.contests(ctx, []contest{
		{load{name: "streams of 6 to 12 s on new connections", streams: streamClients}, preStops, true, judgeSessions},
		{load{name: "streams of 6 to 12 s on new connections", streams: streamClients, beside: shortRequests("keepalive")}, preStops, false, judgeBusySessions},
	})
}

func hookNames() []string {
	var names []string
	for _, p := range slices.Concat(preStops, policies(nil), policies(told)) {
		if !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}

// contests holds them one after the other, and tells what was found also on an error.
func (b *bench) contests(ctx context.Context, all []contest) error {
	for _, c := range all {
		var found []restart
		var err error
		for _, p := range c.hooks {
			if !slices.Contains(b.chosenHooks(), p.name) {
				continue
			}
			var some []restart
			some, err = b.restarts(ctx, p, c.load)
			found = append(found, some...)
			if err != nil {
				err = fmt.Errorf("hook %s: %w", p.name, err)
				break
			}
		}
		b.tell(c, found)
		if err != nil {
			return err
		}
	}
	return nil
}

// restart is one rolling restart.
type restart struct {
	preStop preStop
	streams traffic.Report
	beside  traffic.Report
	pods    []fate // those that it ended
}

// restarts makes a Deployment and restarts it some times.
func (b *bench) restarts(ctx context.Context, p preStop, l load) (all []restart, err error) {
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
	host, err := b.deploy(ctx, namespace, p)
	if err != nil {
		return nil, err
	}
	known, err := b.site.follow(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer known.end()
	n := b.others
	if p.judged {
		n = b.runs
	}
	for i := range n {
		b.say("rolling restart %d of %d, hook %s, %s, short requests beside: %t", i+1, n, p.name, l.name, l.beside != nil)
		r := restart{preStop: p}
		if err := b.restart(ctx, namespace, clients, host, known, l, &r); err != nil {
			return all, err
		}
		b.say("%d of %d streams cut, %d refused; %d of %d short requests failed; terminating %s", r.streams.Cut, r.streams.Started, r.streams.Refused,
			r.beside.Cut+r.beside.Refused, r.beside.Started, times([]restart{r}, fate.terminating))
		for _, text := range slices.Concat(r.streams.Errors, r.beside.Errors) {
			b.say("%s", text)
		}
		all = append(all, r)
	}
	return all, nil
}

// deploy makes the Deployment and its Service, and blocks until it is whole. It returns the Service's host.
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
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: p.annotations}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("make Deployment: %w", err)
	}
	return service.Spec.ClusterIP, b.whole(ctx, namespace)
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
func (b *bench) restart(ctx context.Context, namespace string, clients corev1.Pod, host string, known *chronicle, l load, r *restart) error {
	var old []types.UID
	for uid, f := range known.all() {
		if f.gone.IsZero() && f.name != clients.Name {
			old = append(old, uid)
		}
	}
	if len(old) != replicas {
		return fmt.Errorf("there are %d pods before the restart", len(old))
	}
	streams, err := b.startClient(ctx, clients, to(host, l.streams))
	if err != nil {
		return err
	}
	defer streams.kill()
	var beside *client
	if l.beside != nil {
		if beside, err = b.startClient(ctx, clients, to(host, *l.beside)); err != nil {
			return err
		}
		defer beside.kill()
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
	if beside != nil {
		r.beside, err = beside.stop()
	}
	return err
}

// routePatience is how long the clients' node may take to know of a new Service: until then it refuses.
const routePatience = 30 * time.Second

// to is the client with the address of its protocol's port.
func to(host string, c traffic.Client) traffic.Client {
	port := traffic.DefaultPorts.HTTP
	switch c.Protocol {
	case "grpc":
		port = traffic.DefaultPorts.GRPC
	case "tcp", "halfclose", "pool":
		port = traffic.DefaultPorts.TCP
	}
	c.Address = net.JoinHostPort(host, strconv.Itoa(port))
	c.Patience = routePatience
	return c
}
