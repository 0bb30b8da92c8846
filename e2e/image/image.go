// Package image turns Go packages into container images without a registry: static binaries in the root folder of an
// empty image, as the product's Dockerfile lays them out, in an OCI archive that a runtime imports.
package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/conndrain/conndrain/e2e/build"
)

// Spec is an image to be made.
type Spec struct {
	Name       string   // with a tag, like conndrain.local/traffic:e2e
	Module     string   // folder of the Go module that the packages are in
	Packages   []string // main packages, like ./cmd/prestop: each becomes a file in / named after it
	Entrypoint []string
	User       string // number of the user it runs as; default root
}

// Build compiles the packages and writes the image as an OCI archive into the file archive. Nothing of it depends on the
// time or on the folder: the same source is the same image.
func Build(ctx context.Context, s Spec, archive string) error {
	ref, err := name.NewTag(s.Name)
	if err != nil {
		return fmt.Errorf("name image: %w", err)
	}
	dir, err := os.MkdirTemp("", "conndrain-image-")
	if err != nil {
		return fmt.Errorf("make folder of image %s: %w", s.Name, err)
	}
	defer os.RemoveAll(dir)

	binaries := filepath.Join(dir, "root")
	if err := build.Binaries(ctx, s.Module, binaries, s.Packages...); err != nil {
		return fmt.Errorf("build image %s: %w", s.Name, err)
	}
	img, err := fromFolder(binaries, s)
	if err != nil {
		return fmt.Errorf("build image %s: %w", s.Name, err)
	}
	oci, err := layout.Write(filepath.Join(dir, "oci"), empty.Index)
	if err != nil {
		return fmt.Errorf("write image %s: %w", s.Name, err)
	}
	// containerd takes the image's name from the first of these, other tools from the second
	names := layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          ref.Name(),
		"org.opencontainers.image.ref.name": ref.TagStr(),
	})
	if err := oci.AppendImage(img, names); err != nil {
		return fmt.Errorf("write image %s: %w", s.Name, err)
	}
	if err := archiveFolder(filepath.Join(dir, "oci"), archive); err != nil {
		return fmt.Errorf("write image %s: %w", s.Name, err)
	}
	return nil
}

// fromFolder is an image of one layer: the files of dir, executable and owned by root.
func fromFolder(dir string, s Spec) (v1.Image, error) {
	var layer bytes.Buffer
	if err := writeTar(&layer, dir); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	}, tarball.WithCompressionLevel(1)) // gzip.BestSpeed: it goes no further than this machine
	if err != nil {
		return nil, fmt.Errorf("make layer: %w", err)
	}
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: runtime.GOARCH,
		OS:           "linux",
		RootFS:       v1.RootFS{Type: "layers"},
		Config:       v1.Config{Entrypoint: s.Entrypoint, User: s.User},
	})
	if err != nil {
		return nil, fmt.Errorf("configure: %w", err)
	}
	img, err = mutate.AppendLayers(img, l)
	if err != nil {
		return nil, fmt.Errorf("add layer: %w", err)
	}
	return img, nil
}

func archiveFolder(dir, archive string) error {
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := writeTar(f, dir); err != nil {
		return err
	}
	return f.Close()
}

// writeTar writes the files of dir in the order of their names, without times and owners.
func writeTar(w io.Writer, dir string) error {
	out := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: inside, Mode: int64(info.Mode().Perm()), Size: info.Size(), ModTime: time.Unix(0, 0)}
		if d.IsDir() {
			header.Name, header.Typeflag, header.Size = inside+"/", tar.TypeDir, 0
			return out.WriteHeader(header)
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(out, f)
		return err
	})
	if err != nil {
		return fmt.Errorf("archive %s: %w", filepath.Base(dir), err)
	}
	return out.Close()
}
