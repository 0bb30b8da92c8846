package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/e2e/traffic"
)

// clientPod starts a pod on the quiet node, whose network clients use, and blocks until it runs.
func (b *bench) clientPod(ctx context.Context, namespace string) (corev1.Pod, error) {
	const name = "client"
	spec := serverSpec(0)
	spec.NodeName = quiet
	pods := b.site.Client.CoreV1().Pods(namespace)
	if _, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{}); err != nil {
		return corev1.Pod{}, fmt.Errorf("make pod of clients: %w", err)
	}
	var pod *corev1.Pod
	err := await(ctx, "pod of clients is ready", func(ctx context.Context) (err error) {
		if pod, err = pods.Get(ctx, name, metav1.GetOptions{}); err == nil && !isReady(*pod) {
			err = fmt.Errorf("pod is %s", pod.Status.Phase)
		}
		return err
	})
	if err != nil {
		return corev1.Pod{}, err
	}
	return *pod, nil
}

// client is a traffic program that runs in a pod's network.
type client struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

// startClient starts transfers that go on until the client is stopped, or until there were as many as it counts. The program dies with this process.
func (b *bench) startClient(ctx context.Context, pod corev1.Pod, c traffic.Client) (*client, error) {
	inside, err := oneProcess(pod.UID, "traffic")
	if err != nil {
		return nil, err
	}
	o := &client{cmd: inside.network().Command(ctx, b.site.traffic, append([]string{"client"}, c.Args()...)...)}
	o.cmd.Stdout, o.cmd.Stderr = &o.stdout, &o.stderr
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := o.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start client: %w", err)
	}
	return o, nil
}

// stop lets no further transfer begin, blocks until the last has ended and returns what became of them.
func (o *client) stop() (traffic.Report, error) {
	var r traffic.Report
	_ = o.cmd.Process.Signal(syscall.SIGTERM) // one that counts may have ended
	if err := o.cmd.Wait(); err != nil {
		return r, fmt.Errorf("run client: %w: %s", err, bytes.TrimSpace(o.stderr.Bytes()))
	}
	if err := json.Unmarshal(o.stdout.Bytes(), &r); err != nil {
		return r, fmt.Errorf("read report %q: %w", o.stdout.Bytes(), err)
	}
	return r, nil
}

// kill ends a client that nobody needs the report of.
func (o *client) kill() {
	if o.cmd.ProcessState == nil {
		_ = o.cmd.Process.Kill()
		_ = o.cmd.Wait()
	}
}
