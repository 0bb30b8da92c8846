// Package product puts this project's own programs on a cluster, made of this source.
package product

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/e2e/build"
	"github.com/conndrain/conndrain/e2e/cluster"
	"github.com/conndrain/conndrain/e2e/image"
)

const (
	// Namespace is where the helpers run.
	Namespace = "conndrain-system"
	// Account is whom the API server takes a helper for.
	Account = "system:serviceaccount:" + Namespace + ":conndrain-node"
	// Name is the helpers' DaemonSet, and the value of their label NameLabel.
	Name = "conndrain-node"
	// NameLabel is the label that helpers are found by.
	NameLabel = "app.kubernetes.io/name"

	// HookImage has the program prestop.
	HookImage = "conndrain.local/prestop:e2e"

	nodeImage = "conndrain.local/conndrain-node:e2e"
)

// installTimeout is how long helpers may take to be ready, on a machine that is much slower than ours.
const installTimeout = 5 * time.Minute

// Install loads the images and applies the manifests, and blocks until a helper is ready on every node.
func Install(ctx context.Context, c *cluster.Cluster) error {
	module, err := build.ModuleDir(ctx)
	if err != nil {
		return err
	}
	root := filepath.Dir(module)
	dir, err := os.MkdirTemp("", "conndrain-install-")
	if err != nil {
		return fmt.Errorf("make folder of the installation: %w", err)
	}
	defer os.RemoveAll(dir)
	for name, pkg := range map[string]string{nodeImage: "./cmd/conndrain-node", HookImage: "./cmd/prestop"} {
		program := "/" + filepath.Base(pkg)
		archive := filepath.Join(dir, filepath.Base(pkg)+".tar")
		spec := image.Spec{Name: name, Module: root, Packages: []string{pkg}, Entrypoint: []string{program}}
		if err := image.Build(ctx, spec, archive); err != nil {
			return err
		}
		if err := c.LoadImage(ctx, archive); err != nil {
			return err
		}
	}
	manifests, err := filepath.Rel(dir, filepath.Join(root, "manifests")) // kustomize wants it relative
	if err != nil {
		return fmt.Errorf("find the manifests: %w", err)
	}
	repository, tag, _ := strings.Cut(nodeImage, ":")
	overlay := fmt.Sprintf("resources: [%s]\nimages:\n- {name: ghcr.io/conndrain/conndrain-node, newName: %s, newTag: %s}\n",
		manifests, repository, tag)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		return fmt.Errorf("write overlay: %w", err)
	}
	for _, args := range [][]string{
		{"apply", "--kustomize", dir},
		{"--namespace", Namespace, "rollout", "status", "daemonset/" + Name, "--timeout", installTimeout.String()},
	} {
		args = append([]string{"--kubeconfig", c.Kubeconfig()}, args...)
		out, err := c.Outside.Command(ctx, filepath.Join(c.Bin(), "kubectl"), args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("install the product: %w\n%s", err, out)
		}
	}
	return nil
}

// AddHook gives the first container of a pod the exec hook, from an image that is mounted as a volume.
func AddHook(spec *corev1.PodSpec) {
	const volume = "conndrain"
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: HookImage, PullPolicy: corev1.PullIfNotPresent},
	}})
	main := &spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: "/conndrain", ReadOnly: true})
	main.Env = append(main.Env, corev1.EnvVar{Name: "HOST_IP", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.hostIP"},
	}})
	main.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		Exec: &corev1.ExecAction{Command: []string{"/conndrain/prestop"}},
	}}
}
