package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/build"
	"github.com/conndrain/conndrain/e2e/cluster"
	"github.com/conndrain/conndrain/e2e/image"
	"github.com/conndrain/conndrain/e2e/product"
)

const trafficImage = "conndrain.local/traffic:bench"

// busy is the node that pods end on, quiet one where clients are.
const (
	busy  = "n1"
	quiet = "n2"
)

// site is a cluster of two nodes with the product on it.
type site struct {
	*cluster.Cluster
	traffic string // the program ./cmd/traffic, for clients that this process runs itself
	dir     string
}

// startTries is how often a cluster may fail to start in its time, which other work on the machine can make too short.
const startTries = 3

// open starts a cluster and installs the product.
func open(ctx context.Context) (*site, error) {
	dir, err := os.MkdirTemp("", "conndrain-bench-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	s := &site{dir: dir, traffic: filepath.Join(dir, "traffic")}
	if err := build.Program(ctx, "./cmd/traffic", s.traffic); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for range startTries {
		s.Cluster, err = cluster.Start(ctx, cluster.Options{Nodes: 2, AuditUser: product.Account, Progress: os.Stderr})
		if err == nil || ctx.Err() != nil {
			break
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.fill(ctx); err != nil {
		return nil, errors.Join(err, s.close(ctx.Err() == nil))
	}
	return s, nil
}

func (s *site) fill(ctx context.Context) error {
	module, err := build.ModuleDir(ctx)
	if err != nil {
		return err
	}
	archive := filepath.Join(s.dir, "traffic.tar")
	spec := image.Spec{Name: trafficImage, Module: module, Packages: []string{"./cmd/traffic"}, Entrypoint: []string{"/traffic"}}
	if err := image.Build(ctx, spec, archive); err != nil {
		return err
	}
	if err := s.LoadImage(ctx, archive); err != nil {
		return err
	}
	return product.Install(ctx, s.Cluster)
}

// close stops the cluster, after its logs have been kept where something went wrong.
func (s *site) close(keep bool) error {
	var errs []error
	if keep {
		dir, err := s.KeepLogs(context.Background(), "bench")
		fmt.Fprintln(os.Stderr, "bench: logs of every component and pod, Events and objects are in", dir)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.Stop(), os.RemoveAll(s.dir))...)
}

// space makes a namespace with room for pods. The call that it returns takes it away with all that is in it, and blocks
// until the node is rid of it: what goes on ending there would be in the next figures.
func (s *site) space(ctx context.Context, name string) (remove func() error, err error) {
	namespaces := s.Client.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make namespace: %w", err)
	}
	remove = func() error {
		if ctx.Err() != nil {
			return ctx.Err() // the cluster goes with all
		}
		none := int64(0)
		if err := s.Client.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &none}, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("delete pods: %w", err)
		}
		if err := namespaces.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete namespace: %w", err)
		}
		return await(ctx, "namespace "+name+" is gone", func(ctx context.Context) error {
			if _, err := namespaces.Get(ctx, name, metav1.GetOptions{}); err == nil {
				return errors.New("it is there")
			}
			return nil
		})
	}
	return remove, await(ctx, "default service account", func(ctx context.Context) error {
		_, err := s.Client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// patience is for what takes seconds: a machine that is busy makes a run longer, never wrong.
const patience = 15 * time.Minute

// sayEvery is how often a person is told what takes so long.
const sayEvery = 20 * time.Second

// await polls until try returns nil; its last error comes back when patience is over.
func await(ctx context.Context, what string, try func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	said := time.Now()
	for {
		err := try(limited)
		if err == nil {
			return nil
		}
		if time.Since(said) > sayEvery {
			said = time.Now()
			fmt.Fprintf(os.Stderr, "bench: waits until %s: %v\n", what, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limited.Done():
			return fmt.Errorf("wait until %s: %w (after %s)", what, err, patience)
		case <-tick.C:
		}
	}
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
