package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/conndrain/conndrain/e2e/product"
	"github.com/conndrain/conndrain/e2e/traffic"
)

// custom is a kind of traffic that one client has with a pod.
type custom struct {
	name   string
	client traffic.Client
}

// A stream lasts for some time after the deletion, and the deadline comes later: matrixGrace less its reserve of a fifth.
const (
	matrixGrace  = 40 // seconds
	matrixStream = 16 * time.Second
	// matrixWarmUp is from the client's start to the deletion.
	matrixWarmUp = 4 * time.Second
)

func customs() []custom {
	once := func(protocol string, gap time.Duration) traffic.Client {
		return traffic.Client{Protocol: protocol, Count: 1, Transfer: traffic.Transfer{Bytes: 64 << 10, Duration: matrixStream, Gap: gap}}
	}
	often := func(protocol string, pause time.Duration) traffic.Client {
		return traffic.Client{Protocol: protocol, Transfer: traffic.Transfer{Bytes: 1 << 10}, Pause: pause}
	}
	again := func(protocol string) traffic.Client {
		return traffic.Client{Protocol: protocol, Transfer: traffic.Transfer{Bytes: 64 << 10, Duration: matrixStream / 2}, Pause: 200 * time.Millisecond}
	}
	return []custom{
		{"HTTP/1.1, a download", once("http", 0)},
		{"HTTP/1.1, kept, short requests", often("keepalive", 200*time.Millisecond)},
		{"HTTP/1.1, kept, slow answers in the middle", again("longpoll")},
		{"HTTP/1.1, kept, downloads", again("keepalive")},
		{"server-sent events, one each 3 s", once("http", 3*time.Second)},
		{"long poll", once("longpoll", 0)},
		{"WebSocket, a message each 3 s", once("websocket", 3*time.Second)},
		{"HTTP/2, short requests", often("http2", 200*time.Millisecond)},
		{"HTTP/2, downloads", again("http2")},
		{"gRPC, unary", often("grpc", 200*time.Millisecond)},
		{"gRPC, streams", again("grpc")},
		{"TCP, the server closes", once("tcp", 0)},
		{"database, a pool's connection with a query each second", often("pool", time.Second)},
	}
}

// matrixPolicies are what is compared.
func matrixPolicies() []preStop {
	ours := func(name, until string, more map[string]string) preStop {
		annotations := map[string]string{untilAnnotation: until}
		maps.Copy(annotations, more)
		return preStop{name: name, ours: true, annotations: annotations}
	}
	return []preStop{
		{name: "no hook"},
		ours("sessions", "sessions", nil), ours("requests", "requests", nil), ours("requests and notify", "requests", told),
		ours("sessions and notify", "sessions", told), ours("withdrawn", "withdrawn", nil),
	}
}

// onTerms are what applications do at SIGTERM.
var onTerms = []string{"exit", "shutdown", "ignore"}

// matrix deletes a pod for each kind of traffic, policy and application, with one client, and says what was lost and how
// long the pod was there.
func matrix(ctx context.Context, b *bench) error {
	policies := matrixPolicies()
	cells := make(map[string][][]string) // by application, kind and policy
	for _, kind := range customs() {
		found, err := b.matrixOf(ctx, kind, policies)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		for i, onTerm := range onTerms {
			line := append([]string{kind.name}, found[i]...)
			b.say("%s, %s: %s", kind.name, onTerm, strings.Join(found[i], "; "))
			cells[onTerm] = append(cells[onTerm], line)
		}
	}
	header := []string{"traffic"}
	for _, p := range policies {
		header = append(header, p.name)
	}
	for _, onTerm := range onTerms {
		b.report.Tables = append(b.report.Tables, table{
			Title:  fmt.Sprintf("An application that does this at SIGTERM: %s. Grace period %d s. Transfers that were cut, and how long the pod was there:", onTerm, matrixGrace),
			Header: header, Lines: cells[onTerm],
		})
	}
	return nil
}

// matrixOf is what came of one kind of traffic, by application and policy.
func (b *bench) matrixOf(ctx context.Context, kind custom, policies []preStop) (found [][]string, err error) {
	const namespace = "matrix"
	remove, err := b.site.space(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	clients, err := b.clientPod(ctx, namespace)
	if err != nil {
		return nil, err
	}
	made := 0
	pods, err := b.hooked(ctx, namespace, len(onTerms)*len(policies), func(pod *corev1.Pod) {
		onTerm, p := onTerms[made/len(policies)], policies[made%len(policies)]
		made++
		node := pod.Spec.NodeName
		pod.Spec, pod.Annotations = serverSpec(matrixGrace), p.annotations
		pod.Spec.NodeName = node
		pod.Spec.Containers[0].Args = []string{"server", "-on-term", onTerm}
		if p.ours {
			product.AddHook(&pod.Spec)
		}
	})
	if err != nil {
		return nil, err
	}
	byName := make(map[string]corev1.Pod)
	for _, pod := range pods {
		byName[pod.Name] = pod
	}
	known, err := b.site.follow(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer known.end()
	running := make([]*client, made)
	var uids []types.UID
	for i := range running {
		pod := byName[nameOf(i)]
		uids = append(uids, pod.UID)
		c := to(pod.Status.PodIP, kind.client)
		if running[i], err = b.startClient(ctx, clients, c); err != nil {
			return nil, err
		}
		defer running[i].kill() //nolint:revive // all of them run until the end
	}
	if err := pause(ctx, matrixWarmUp); err != nil {
		return nil, err
	}
	if err := b.removeAll(ctx, pods); err != nil {
		return nil, err
	}
	back, err := b.elsewhere(ctx, clients)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, back()) }()
	if err := known.awaitGone(ctx, uids); err != nil {
		return nil, err
	}
	reports := make([]traffic.Report, made)
	var ends errgroup.Group // each waits for its last attempt at a pod that is gone
	for i, c := range running {
		ends.Go(func() (err error) {
			reports[i], err = c.stop()
			return err
		})
	}
	if err := ends.Wait(); err != nil {
		return nil, err
	}
	found = make([][]string, len(onTerms))
	for i, r := range reports {
		found[i/len(policies)] = append(found[i/len(policies)], fmt.Sprintf("%d, %.0f s", r.Cut, known.of(uids[i]).terminating().Seconds()))
	}
	return found, nil
}

// elsewhere refuses new connections of the clients, which go straight to a pod: a Service would lead them to another one
// from now on. back ends it.
func (b *bench) elsewhere(ctx context.Context, clients corev1.Pod) (back func() error, err error) {
	node, err := b.site.Node(clients.Spec.NodeName)
	if err != nil {
		return nil, err
	}
	const table = "ip elsewhere"
	rules := fmt.Sprintf("add table %[1]s; add chain %[1]s forward { type filter hook forward priority 0 ; }; "+
		"add rule %[1]s forward ip saddr %[2]s tcp flags & (syn | ack) == syn reject with tcp reset", table, clients.Status.PodIP)
	if out, err := node.Run(ctx, "nft", rules); err != nil {
		return nil, fmt.Errorf("refuse new connections: %w: %s", err, out)
	}
	return func() error {
		_, err := node.Run(context.WithoutCancel(ctx), "nft", "delete table "+table)
		return err
	}, nil
}

// awaitGone blocks until the pods are no more, whatever they said.
func (c *chronicle) awaitGone(ctx context.Context, uids []types.UID) error {
	return await(ctx, "pods are gone", func(context.Context) error {
		for _, uid := range uids {
			if c.of(uid).gone.IsZero() {
				return errors.New("some are there")
			}
		}
		return nil
	})
}
