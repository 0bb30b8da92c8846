// Command image makes the product's images as its Dockerfile says, without a daemon and without a base image: archives
// for docker load, ctr images import and skopeo, and on request a push to a registry.
//
// It understands what that Dockerfile uses: a stage that builds, whose RUN is run here, and stages FROM scratch that copy
// from it. Anything else is an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := execute(ctx, os.Args[1:]); errors.Is(err, flag.ErrHelp) {
		return 2
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		return 1
	}
	return 0
}

// options are the flags.
type options struct {
	source, out, version, registry, tag string
	arches                              []string
	push                                bool
}

func parse(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	fs.StringVar(&o.source, "source", ".", "folder with the Dockerfile")
	fs.StringVar(&o.out, "out", "bin/images", "folder of the archives: one for each image and architecture")
	fs.StringVar(&o.version, "version", "v0", "the build argument VERSION")
	fs.StringVar(&o.registry, "registry", "ghcr.io/conndrain", "what the names of the images begin with")
	fs.StringVar(&o.tag, "tag", "v0", "their tag")
	arches := fs.String("arch", "amd64,arm64", "architectures")
	fs.BoolVar(&o.push, "push", false, "push to the registry too, with the credentials that docker login has stored")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q: there are flags only", fs.Arg(0))
	}
	o.arches = strings.FieldsFunc(*arches, func(r rune) bool { return r == ',' || r == ' ' })
	if len(o.arches) == 0 {
		return o, errors.New("no architecture: name one with -arch")
	}
	return o, nil
}

func execute(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(o.source, "Dockerfile"))
	if err != nil {
		return err
	}
	defer f.Close()
	recipe, err := readDockerfile(f)
	if err != nil {
		return fmt.Errorf("read %s: %w", f.Name(), err)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	made := map[string][]platformImage{}
	for _, arch := range o.arches {
		args := map[string]string{"TARGETOS": "linux", "TARGETARCH": arch, "VERSION": o.version}
		dir, err := os.MkdirTemp("", "conndrain-image-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:revive // one for each architecture, all to the end: layers are read from them
		if err := recipe.build(ctx, o.source, dir, args); err != nil {
			return err
		}
		for _, target := range recipe.targets {
			img, err := target.image(dir, args)
			if err != nil {
				return fmt.Errorf("make image %s for %s: %w", target.name, arch, err)
			}
			archive := filepath.Join(o.out, target.name+"-"+arch+".tar")
			if err := writeArchive(archive, o.reference(target.name), img); err != nil {
				return fmt.Errorf("write %s: %w", archive, err)
			}
			fmt.Println(archive)
			made[target.name] = append(made[target.name], platformImage{arch, img})
		}
	}
	if !o.push {
		return nil
	}
	for _, target := range recipe.targets {
		reference := o.reference(target.name)
		if err := push(ctx, reference, made[target.name]); err != nil {
			return fmt.Errorf("push %s: %w", reference, err)
		}
		fmt.Println("pushed", reference)
	}
	return nil
}

func (o options) reference(name string) string { return o.registry + "/" + name + ":" + o.tag }
