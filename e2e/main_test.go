// Package e2e runs tests on a real Kubernetes cluster; see README.md.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/conndrain/conndrain/e2e/build"
	"github.com/conndrain/conndrain/e2e/cluster"
	"github.com/conndrain/conndrain/e2e/image"
)

// trafficImage is the program ./cmd/traffic in every cluster of these tests.
const trafficImage = "conndrain.local/traffic:e2e"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "conndrain-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	status := m.Run()
	if c := started; c != nil {
		if err := c.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return status
}

var (
	scratch string           // a folder for what is built for this run
	started *cluster.Cluster // by shared
)

const sharedNodes = 2

// shared is the cluster of two nodes that cases run in side by side, each in a namespace of its own. It is started by the
// first that asks for it; no case may harm its nodes.
var shared = sync.OnceValues(func() (*cluster.Cluster, error) {
	if err := room.Acquire(context.Background(), sharedNodes+1); err != nil {
		return nil, err
	}
	c, err := start(context.Background(), cluster.Options{Nodes: sharedNodes})
	started = c
	return c, err
})

// start starts a cluster that has the traffic programs.
func start(ctx context.Context, o cluster.Options) (*cluster.Cluster, error) {
	archive, err := trafficArchive()
	if err != nil {
		return nil, err
	}
	o.Progress = os.Stderr
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := c.LoadImage(ctx, archive); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// trafficArchive is built once for all clusters of a run.
var trafficArchive = sync.OnceValues(func() (string, error) {
	ctx := context.Background()
	module, err := build.ModuleDir(ctx)
	if err != nil {
		return "", err
	}
	archive := filepath.Join(scratch, "traffic.tar")
	return archive, image.Build(ctx, image.Spec{
		Name: trafficImage, Module: module, Packages: []string{"./cmd/traffic"}, Entrypoint: []string{"/traffic"},
	}, archive)
})

// trafficProgram is ./cmd/traffic as a file, for clients outside of the cluster.
var trafficProgram = sync.OnceValues(func() (string, error) {
	program := filepath.Join(scratch, "traffic")
	if err := build.Program(context.Background(), "./cmd/traffic", program); err != nil {
		return "", err
	}
	return program, nil
})

// machines bounds how many machines run at once: each takes some 14 of the inotify instances that one user has by default
// (128), and a kubelet that finds none dies. The shared cluster has three.
const machines = 8

var room = semaphore.NewWeighted(machines)

// startFor starts a cluster of the test's own, which ends with the test; when the test fails, its logs are kept. It blocks
// until there is room for it.
func startFor(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	weight := int64(max(o.Nodes, 1) + 1) // its nodes and its control plane
	if err := room.Acquire(t.Context(), weight); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { room.Release(weight) })
	c, err := start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		keepLogs(t, c)
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// keepLogs names the folder with the logs of every component, when the test has failed.
func keepLogs(t *testing.T, c *cluster.Cluster) {
	if !t.Failed() {
		return
	}
	dir, err := c.KeepLogs(context.Background(), filepath.Base(t.Name()))
	if err != nil {
		t.Errorf("keep logs: %v", err)
		return
	}
	t.Logf("logs of every component and pod, Events and objects are in %s", dir)
}

// limit is for what takes seconds, on a machine that is five times slower than ours.
const limit = 2 * time.Minute

// eventually polls until try returns nil and fails the test with its last error after the limit.
func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if ends, _ := ctx.Deadline(); time.Until(ends) > time.Second || last == nil {
			last = err // one that only says that the time is over tells nothing
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, last)
		case <-tick.C:
		}
	}
}
