package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

const (
	// helperContainer and helperProgram are what runs on each node.
	helperContainer = "conndrain-node"
	helperProgram   = "/conndrain-node"
	// askTimeout is how long one helper may take to answer.
	askTimeout = 15 * time.Second
)

// runner runs a command in a helper's container. It blocks until the command has
// ended, or ctx has.
type runner interface {
	run(ctx context.Context, pod *corev1.Pod, command []string, stdout, stderr io.Writer) error
}

// execRunner does it as kubectl exec does: over a WebSocket, or over SPDY where
// something in between knows only that.
type execRunner struct {
	config *rest.Config
	client kubernetes.Interface
}

func (r execRunner) run(ctx context.Context, pod *corev1.Pod, command []string, stdout, stderr io.Writer) error {
	url := r.client.CoreV1().RESTClient().Post().
		Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: helperContainer, Command: command, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec).URL()
	socket, err := remotecommand.NewWebSocketExecutor(r.config, "GET", url.String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(r.config, "POST", url)
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr})
}

// ask runs a subcommand of the helper's and decodes the object that it prints.
func (c *cluster) ask(ctx context.Context, h helper, into any, args ...string) error {
	if err := h.fault(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	err := c.run.run(ctx, &h.pod, append([]string{helperProgram}, args...), &stdout, &stderr)
	switch {
	case err == nil:
	case apierrors.IsForbidden(err) || strings.Contains(err.Error(), "forbidden"):
		return fmt.Errorf("you may not run a command in its helper: that takes the verbs create and get on pods/exec in namespace %s: %w",
			h.pod.Namespace, err)
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("its helper %s did not answer within %s", h.pod.Name, askTimeout)
	case stderr.Len() > 0:
		return fmt.Errorf("its helper %s says: %s", h.pod.Name, strings.TrimSpace(stderr.String()))
	default:
		return fmt.Errorf("run a command in its helper %s: %w", h.pod.Name, err)
	}
	if err := json.Unmarshal(stdout.Bytes(), into); err != nil {
		return fmt.Errorf("read the answer of its helper %s: %w", h.pod.Name, err)
	}
	return nil
}
