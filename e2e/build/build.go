// Package build makes what a cluster runs on, once: Kubernetes and etcd as one binary, containerd with its shim, and the
// Debian file tree that nodes boot from. Everything is kept in CacheDir, keyed by what it is made of.
package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Versions of what the tools modules build; their go.mod files hold the same.
const (
	KubernetesVersion = "v1.37.2"
	ContainerdVersion = "v2.4.2"
)

// KubernetesPrograms are the names under which the one binary is linked.
var KubernetesPrograms = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl",
}

// Artifacts are the folders that a cluster uses, read only.
type Artifacts struct {
	Kubernetes string // KubernetesPrograms
	Containerd string // containerd, containerd-shim-runc-v2, ctr
	Rootfs     string // a Debian file tree
}

// Prepare installs the Debian packages that are missing on this machine and builds what the cache does not hold. It
// takes up to 25 minutes with an empty cache and none with a full one, prints what it does to progress, and waits while
// another process builds into the same cache. It needs root, and a network only for what it builds.
func Prepare(ctx context.Context, progress io.Writer) (Artifacts, error) {
	start := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(progress, "%6s  %s\n", time.Since(start).Round(time.Second), fmt.Sprintf(format, args...))
	}
	if os.Geteuid() != 0 {
		return Artifacts{}, errors.New("prepare a cluster: this needs root (packages, debootstrap, namespaces): run it with sudo")
	}
	module, err := ModuleDir(ctx)
	if err != nil {
		return Artifacts{}, err
	}
	cache, err := CacheDir()
	if err != nil {
		return Artifacts{}, err
	}
	unlock, err := lockCache(cache, say)
	if err != nil {
		return Artifacts{}, err
	}
	defer unlock()
	if err := installPackages(ctx, say); err != nil {
		return Artifacts{}, err
	}

	var a Artifacts
	tools := filepath.Join(module, "tools")
	for _, p := range []struct {
		out       *string
		name      string
		gigabytes uint64
		files     []string
		words     []string
		make      func(dir string) error
	}{
		{&a.Rootfs, "rootfs", 2, nil, append([]string{rootfsSuite}, rootfsPackages...),
			func(dir string) error { return makeRootfs(ctx, dir, say) }},
		{&a.Containerd, "containerd", 4, moduleFiles(tools, "containerd"), []string{ContainerdVersion, containerdTags},
			func(dir string) error { return makeContainerd(ctx, filepath.Join(tools, "containerd"), dir, say) }},
		{&a.Kubernetes, "kubernetes", 12, moduleFiles(tools, "kubernetes"), []string{KubernetesVersion},
			func(dir string) error { return makeKubernetes(ctx, filepath.Join(tools, "kubernetes"), dir, say) }},
	} {
		key, err := keyOf(p.files, p.words...)
		if err != nil {
			return Artifacts{}, err
		}
		e := entry{cache: cache, name: p.name, key: key}
		*p.out = e.path()
		if e.exists() {
			continue
		}
		if err := RequireSpace(cache, p.gigabytes, "building "+p.name); err != nil {
			return Artifacts{}, fmt.Errorf("%w, or set XDG_CACHE_HOME", err)
		}
		say("building %s (once: it is kept in %s)", p.name, e.path())
		if err := e.fill(p.make); err != nil {
			return Artifacts{}, err
		}
		say("%s is built", p.name)
	}
	a.Rootfs = filepath.Join(a.Rootfs, "rootfs")
	return a, nil
}

// Program builds one package of this module into the file out, in a moment when the compiler's cache is warm.
func Program(ctx context.Context, pkg, out string) error {
	module, err := ModuleDir(ctx)
	if err != nil {
		return err
	}
	return goBuild{dir: module, packages: []string{pkg}, out: out}.run(ctx, nil)
}

// Binaries builds main packages of the module in dir, static, into the folder out, each named after its package.
func Binaries(ctx context.Context, dir, out string, packages ...string) error {
	return goBuild{dir: dir, packages: packages, out: out + string(filepath.Separator)}.run(ctx, nil)
}

// ModuleDir is the folder of this module's source; the working directory must be inside of it.
func ModuleDir(ctx context.Context) (string, error) {
	out, err := goCommand(ctx, "", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find this module: %w\n%s", err, stderrOf(err))
	}
	mod := strings.TrimSpace(string(out))
	b, err := os.ReadFile(mod)
	if err != nil || !strings.Contains(string(b), "module github.com/conndrain/conndrain/e2e\n") {
		return "", fmt.Errorf("find this module: %q is not e2e/go.mod: run this inside of e2e/", mod)
	}
	return filepath.Dir(mod), nil
}

func moduleFiles(tools, name string) []string {
	files := []string{filepath.Join(tools, name, "go.mod"), filepath.Join(tools, name, "go.sum")}
	sources, _ := filepath.Glob(filepath.Join(tools, name, "*.go")) // the pattern is a constant: no error
	return append(files, sources...)
}
