package main

import (
	"archive/tar"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// The product's Dockerfile is understood whole, and builds with make.
func TestProduct(t *testing.T) {
	f, err := os.Open("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := readDockerfile(f)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"make build build-example GOOS=$TARGETOS GOARCH=$TARGETARCH VERSION=$VERSION OUT=$OUT"}
	if diff := cmp.Diff(want, r.commands); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	got := map[string]string{}
	for _, target := range r.targets {
		got[target.name] = target.user + strings.Join(target.entrypoint, " ")
		if len(target.files) == 0 || target.files[len(target.files)-1].to == "" {
			t.Errorf("%s copies %+v", target.name, target.files)
		}
	}
	users := map[string]string{
		"conndrain-node": "/conndrain-node", "conndrain": "/conndrain",
		"prestop": "65532:65532/prestop", "example": "65532:65532/example",
	}
	if diff := cmp.Diff(users, got); diff != "" {
		t.Errorf("user and entrypoint (-want +got):\n%s", diff)
	}
}

const buildStage = "FROM golang AS build\nENV OUT=/out\nRUN true\n"

func TestWhatIsNotUnderstood(t *testing.T) {
	for _, tc := range []struct{ file, want string }{
		{"FORM scratch", "unknown instruction"},
		{"FROM scratch AS a", "1 stages"},
		{"FROM golang AS build\nRUN true\nFROM scratch AS a\n", "set ENV OUT"},
		{"FROM golang AS build\nENV OUT=/out X=y\nRUN true\nFROM scratch AS a\n", "ENV X"},
		{buildStage + "FROM debian AS a\n", "use scratch"},
		{buildStage + "FROM scratch AS a\nRUN true\n", "RUN is not understood"},
		{buildStage + "FROM scratch AS a\nCOPY a /a\n", "use COPY --from=build"},
		{buildStage + "FROM scratch AS a\nCOPY --from=build /etc/a /a\n", "use COPY --from=build"},
		{buildStage + "FROM scratch AS a\nENTRYPOINT a\n", "needs a shell"},
	} {
		if _, err := readDockerfile(strings.NewReader(tc.file)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %q", tc.file, err, tc.want)
		}
	}
}

const small = `ARG GO=1
FROM --platform=$BUILDPLATFORM golang:$GO AS build
WORKDIR /src
COPY . .
ARG TARGETOS TARGETARCH VERSION=none
ENV OUT=/out
RUN mkdir -p $OUT && echo $TARGETOS/$TARGETARCH $VERSION > $OUT/program
FROM scratch AS one
ARG VERSION=none
LABEL title="one of $TARGETARCH" version=$VERSION
COPY --from=build /out/program /one
USER 65532:65532
ENTRYPOINT ["/one"]
FROM scratch AS two
COPY --from=build /out/program /bin/two
`

// Archives and a registry have the same images: what docker load and a node's runtime get.
func TestImages(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	source, out := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "Dockerfile"), []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-source", source, "-out", out, "-version", "v1.2", "-registry", host + "/team", "-tag", "t", "-push"}
	if err := execute(t.Context(), args); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(host + "/team/one:t")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		archived, err := tarball.ImageFromPath(filepath.Join(out, "one-"+arch+".tar"), &tag)
		if err != nil {
			t.Fatal(err)
		}
		pushed, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		for where, img := range map[string]v1.Image{"archive": archived, "registry": pushed} {
			if err := validate.Image(img); err != nil {
				t.Errorf("%s: %v", where, err)
			}
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			want := v1.Config{
				Entrypoint: []string{"/one"}, User: "65532:65532",
				Labels: map[string]string{"title": "one of ", "version": "v1.2"}, // the stage does not declare TARGETARCH
			}
			if diff := cmp.Diff(want, config.Config); diff != "" {
				t.Errorf("%s for %s (-want +got):\n%s", where, arch, diff)
			}
			if got := config.OS + "/" + config.Architecture; got != "linux/"+arch {
				t.Errorf("%s says %s, want linux/%s", where, got, arch)
			}
			if diff := cmp.Diff(map[string]string{"one": "linux/" + arch + " v1.2\n"}, filesOf(t, img)); diff != "" {
				t.Errorf("files of %s (-want +got):\n%s", where, diff)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(out, "two-arm64.tar")); err != nil {
		t.Error(err)
	}
}

func filesOf(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("there are %d layers (%v), want one", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	files := map[string]string{}
	for in := tar.NewReader(content); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o755 || h.Uid != 0 {
			t.Errorf("%s has mode %o and owner %d", h.Name, h.Mode, h.Uid)
		}
		files[h.Name] = string(b)
	}
}

func TestBuildThatDoesNotWork(t *testing.T) {
	source := t.TempDir()
	file := strings.Replace(small, "RUN mkdir", "RUN false && mkdir", 1)
	if err := os.WriteFile(filepath.Join(source, "Dockerfile"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	err := execute(t.Context(), []string{"-source", source, "-out", t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "false && mkdir") {
		t.Errorf("error %v, want one that names the command", err)
	}
}
