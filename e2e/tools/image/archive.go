package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is the target's: one layer, owned by root and without times, so that the same programs are the same image.
func (t target) image(out string, values map[string]string) (v1.Image, error) {
	labels, err := t.labelsOf(values)
	if err != nil {
		return nil, err
	}
	layer, err := layerOf(out, t.files)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS: values["TARGETOS"], Architecture: values["TARGETARCH"],
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: t.entrypoint, User: t.user, Labels: labels},
	})
	if err != nil {
		return nil, fmt.Errorf("configure: %w", err)
	}
	return mutate.AppendLayers(img, layer)
}

func layerOf(out string, files []copied) (v1.Layer, error) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(out, f.from))
		if err != nil {
			return nil, err
		}
		header := &tar.Header{Name: strings.TrimPrefix(f.to, "/"), Mode: 0o755, Size: int64(len(b)), ModTime: time.Unix(0, 0)}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(b); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// writeArchive writes what docker load, ctr images import and skopeo read.
func writeArchive(file, reference string, img v1.Image) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(file, tag, img)
}

// platformImage is an image for one architecture.
type platformImage struct {
	arch  string
	image v1.Image
}

// push sends the images to a registry, under one name for all architectures.
func push(ctx context.Context, reference string, images []platformImage) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        p.image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch}},
		})
	}
	return remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
}
