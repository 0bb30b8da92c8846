package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/product"
)

const metricsPort = 10941

// helper is a node's helper that runs.
type helper struct {
	site    *site
	address string // of its metrics
	pod     corev1.Pod
	process process
}

// helperOn finds the helper of a node.
func (s *site) helperOn(ctx context.Context, node string) (helper, error) {
	list, err := s.Client.CoreV1().Pods(product.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: product.NameLabel + "=" + product.Name, FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil {
		return helper{}, fmt.Errorf("list helpers: %w", err)
	}
	if len(list.Items) != 1 {
		return helper{}, fmt.Errorf("%d helpers are on %s, not one", len(list.Items), node)
	}
	return s.helperOf(list.Items[0], metricsPort)
}

// helperOf is the helper that runs in a pod.
func (s *site) helperOf(pod corev1.Pod, port int) (helper, error) {
	p, err := oneProcess(pod.UID, product.Name)
	if err != nil {
		return helper{}, err
	}
	return helper{s, net.JoinHostPort(pod.Status.HostIP, strconv.Itoa(port)), pod, p}, nil
}

// metric is a figure of the helper; one that it does not have is 0.
func (h helper) metric(ctx context.Context, name string) (float64, error) {
	client := http.Client{Transport: &http.Transport{DialContext: h.site.Outside.Dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("get metrics: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("get metrics: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, fmt.Errorf("read metric %q: %w", line, err)
			}
			return v, nil
		}
	}
	return 0, nil
}

const draining = `conndrain_drains{phase="draining"}`

// awaitDraining blocks until n drains have passed the withdrawal and wait for sessions.
func (h helper) awaitDraining(ctx context.Context, n int) error {
	return await(ctx, fmt.Sprintf("%d pods are draining", n), func(ctx context.Context) error {
		now, err := h.metric(ctx, draining)
		if err != nil {
			return err
		}
		if int(now) < n {
			return fmt.Errorf("%.0f are", now)
		}
		return nil
	})
}
