package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/conndrain/conndrain/e2e/build"
)

// Two programs in one image, as the product's has them.
func TestImageHasItsProgramsAndNothingElse(t *testing.T) {
	img, archive := buildImage(t)
	if err := validate.Image(img); err != nil {
		t.Errorf("image is not whole: %v", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{Entrypoint: []string{"/machine"}, User: "65532"}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("there are %d layers (%v), want one", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var files []string
	for in := tar.NewReader(content); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o755 || h.Uid != 0 || h.Size == 0 {
			t.Errorf("%s has mode %o, owner %d and %d bytes", h.Name, h.Mode, h.Uid, h.Size)
		}
		files = append(files, h.Name)
	}
	if diff := cmp.Diff([]string{"machine", "pause"}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}

	_, again := buildImage(t)
	if !bytes.Equal(archive, again) {
		t.Error("the same source made another image")
	}
}

// buildImage returns the image as it is read back from its archive, and the archive.
func buildImage(t *testing.T) (v1.Image, []byte) {
	t.Helper()
	module, err := build.ModuleDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "image.tar")
	err = Build(t.Context(), Spec{
		Name: "conndrain.local/two:v1", Module: module, Packages: []string{"./image/pause", "./cmd/machine"},
		Entrypoint: []string{"/machine"}, User: "65532",
	}, name)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for in := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(file, 0o755)
		} else {
			var b []byte
			if b, err = io.ReadAll(in); err == nil {
				err = os.WriteFile(file, b, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("index has %v (%v), want one image", manifest, err)
	}
	if got := manifest.Manifests[0].Annotations["io.containerd.image.name"]; got != "conndrain.local/two:v1" {
		t.Errorf("containerd is told the name %q", got)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return img, archive
}

func TestBuildTellsWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		spec Spec
		want string
	}{
		{Spec{Name: "Not A Name"}, "name image"},
		{Spec{Name: "conndrain.local/none:v1", Module: t.TempDir(), Packages: []string{"./none"}}, "build ./none"},
	} {
		err := Build(t.Context(), test.spec, filepath.Join(t.TempDir(), "image.tar"))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("build %q: %v, want %q in the error", test.spec.Name, err, test.want)
		}
	}
}
