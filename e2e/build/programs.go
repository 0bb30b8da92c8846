package build

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// containerdTags leaves out the snapshotters that need C libraries or devices.
const containerdTags = "no_btrfs no_zfs no_devmapper"

func makeContainerd(ctx context.Context, module, dir string, say func(string, ...any)) error {
	const path = "github.com/containerd/containerd/v2"
	return goBuild{
		dir:      module,
		packages: []string{path + "/cmd/containerd", path + "/cmd/containerd-shim-runc-v2", path + "/cmd/ctr"},
		out:      dir + string(filepath.Separator),
		tags:     containerdTags,
		ldflags:  "-X " + path + "/version.Version=" + ContainerdVersion,
		nice:     true,
	}.run(ctx, say)
}

// makeKubernetes builds the one binary and links it under each program's name. The version is set as a release sets it:
// kubelets and API servers compare theirs, and kubectl prints it.
func makeKubernetes(ctx context.Context, module, dir string, say func(string, ...any)) error {
	const version = "k8s.io/component-base/version"
	parts := strings.Split(strings.TrimPrefix(KubernetesVersion, "v"), ".")
	err := goBuild{
		dir:      module,
		packages: []string{"."},
		out:      filepath.Join(dir, "kubernetes"),
		ldflags: fmt.Sprintf("-X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=clean",
			version, KubernetesVersion, parts[0], parts[1]),
		nice: true,
	}.run(ctx, say)
	if err != nil {
		return err
	}
	for _, name := range KubernetesPrograms {
		if err := os.Symlink("kubernetes", filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}
