package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/conndrain/conndrain/e2e/build"
	"github.com/conndrain/conndrain/e2e/image"
)

const pauseImage = "conndrain.local/pause:1"

// images is a folder that every node sees as /opt/images.
func (c *Cluster) images() string { return filepath.Join(c.dir, "images") }

// LoadImage gives an OCI archive, which package image makes, to every node; pods use it with imagePullPolicy
// IfNotPresent. Nodes keep it when they reboot, and a name that they have already gets the new image.
func (c *Cluster) LoadImage(ctx context.Context, archive string) error {
	// The kubelet's side of containerd takes an image that bears this label with another value for one that it does not
	// know yet. Otherwise it would never learn what a known name stands for now, and not find it.
	const unknown = "io.cri-containerd.image=loaded"
	name := filepath.Base(archive)
	if err := copyFile(archive, filepath.Join(c.images(), name)); err != nil {
		return fmt.Errorf("load image: %w", err)
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, n := range c.Nodes {
		g.Go(func() error {
			_, err := n.Run(gctx, "ctr", "--namespace=k8s.io", "images", "import", "--local", "--label", unknown,
				"/opt/images/"+name)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("load image %s: %w", name, err)
	}
	return nil
}

// loadPauseImage makes the one image that every pod needs. Nothing can be pulled: no node has a way out.
func (c *Cluster) loadPauseImage(ctx context.Context) error {
	module, err := build.ModuleDir(ctx)
	if err != nil {
		return err
	}
	archive := filepath.Join(c.dir, "pause.tar")
	spec := image.Spec{Name: pauseImage, Module: module, Packages: []string{"./image/pause"}, Entrypoint: []string{"/pause"}}
	if err := image.Build(ctx, spec, archive); err != nil {
		return err
	}
	defer os.Remove(archive)
	return c.LoadImage(ctx, archive)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}
