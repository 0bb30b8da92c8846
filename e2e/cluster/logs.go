package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// snapshotTimeout is for all that is asked of a cluster that may be ill.
const snapshotTimeout = time.Minute

// KeepLogs copies every component's and pod's log, each machine's console and journal, and the cluster's nodes, pods,
// EndpointSlices and Events as they are now into a new folder outside of the clone, and returns the folder. What cannot be
// read is named in a file there.
func (c *Cluster) KeepLogs(ctx context.Context, name string) (string, error) {
	top := filepath.Join(os.TempDir(), "conndrain-e2e-logs")
	if err := os.MkdirAll(top, 0o755); err != nil {
		return "", fmt.Errorf("make folder of logs: %w", err)
	}
	dir, err := os.MkdirTemp(top, time.Now().Format("0102-150405-")+name+"-")
	if err != nil {
		return "", fmt.Errorf("make folder of logs: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	var errs []error
	for _, n := range c.machines() {
		errs = append(errs, n.keepLogs(ctx, filepath.Join(dir, n.Name)))
	}
	if c.Client != nil {
		errs = append(errs, c.keepObjects(ctx, dir))
	}
	if err := errors.Join(errs...); err != nil {
		if err := os.WriteFile(filepath.Join(dir, "missing.txt"), []byte(err.Error()), 0o644); err != nil {
			return dir, fmt.Errorf("write what is missing of the logs: %w", err)
		}
	}
	return dir, nil
}

func (n *Node) keepLogs(ctx context.Context, dir string) error {
	if err := os.CopyFS(dir, os.DirFS(n.spec.LogDir())); err != nil {
		return fmt.Errorf("copy logs of %s: %w", n.Name, err)
	}
	pods := filepath.Join(n.spec.Upper(), "var/log/pods")
	if _, err := os.Stat(pods); err == nil {
		if err := os.CopyFS(filepath.Join(dir, "pods"), os.DirFS(pods)); err != nil {
			return fmt.Errorf("copy logs of the pods on %s: %w", n.Name, err)
		}
	}
	journal, err := n.Run(ctx, "journalctl", "--no-pager", "--output=short-precise")
	if err != nil {
		return err // powered off: its console log is there
	}
	if err := os.WriteFile(filepath.Join(dir, "journal.log"), []byte(journal), 0o644); err != nil {
		return fmt.Errorf("write journal of %s: %w", n.Name, err)
	}
	return nil
}

// keepObjects writes what the API holds: Events as kubectl prints them, the rest whole.
func (c *Cluster) keepObjects(ctx context.Context, dir string) error {
	all := metav1.ListOptions{}
	core, discovery := c.Client.CoreV1(), c.Client.DiscoveryV1()
	var errs []error
	keep := func(name string, list any, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("list %s: %w", name, err))
			return
		}
		b, err := yaml.Marshal(list)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name+".yaml"), b, 0o644)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write %s: %w", name, err))
		}
	}
	nodes, err := core.Nodes().List(ctx, all)
	keep("nodes", nodes, err)
	pods, err := core.Pods("").List(ctx, all)
	keep("pods", pods, err)
	slices, err := discovery.EndpointSlices("").List(ctx, all)
	keep("endpointslices", slices, err)
	events, err := core.Events("").List(ctx, all)
	if err != nil {
		errs = append(errs, fmt.Errorf("list events: %w", err))
	} else if err := writeEvents(filepath.Join(dir, "events.txt"), events.Items); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func writeEvents(name string, events []corev1.Event) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	defer f.Close()
	for _, e := range events {
		at := e.LastTimestamp.Time
		if at.IsZero() {
			at = e.EventTime.Time
		}
		fmt.Fprintf(f, "%s %s %s %s/%s/%s: %s\n", at.UTC().Format("15:04:05.000"), e.Type, e.Reason,
			e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Message)
	}
	return f.Close()
}
