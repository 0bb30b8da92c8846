package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

// recipe is what a Dockerfile says.
type recipe struct {
	// arguments are those of the build stage with their defaults.
	arguments map[string]string
	// commands are what it runs, in the source's folder.
	commands []string
	targets  []target
}

// outVariable names the folder that the build stage writes to and the others copy from.
const outVariable = "OUT"

// target is a stage that becomes an image.
type target struct {
	name       string
	arguments  map[string]string
	labels     instructions.KeyValuePairs
	files      []copied
	user       string
	entrypoint []string
}

// copied is a program: a file of the build's output, and where it is in the image.
type copied struct{ from, to string }

// readDockerfile reads a Dockerfile whose first stage builds and whose others are FROM scratch. What it does not know how
// to make is an error.
func readDockerfile(r io.Reader) (recipe, error) {
	parsed, err := parser.Parse(r)
	if err != nil {
		return recipe{}, err
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return recipe{}, err
	}
	if len(stages) < 2 {
		return recipe{}, fmt.Errorf("there are %d stages: use one that builds and one for each image", len(stages))
	}
	build, out, err := readBuild(stages[0])
	if err != nil {
		return recipe{}, fmt.Errorf("stage %s: %w", stages[0].Name, err)
	}
	for _, stage := range stages[1:] {
		t, err := readTarget(stage, stages[0].Name, out)
		if err != nil {
			return recipe{}, fmt.Errorf("stage %s: %w", stage.Name, err)
		}
		build.targets = append(build.targets, t)
	}
	return build, nil
}

func readBuild(stage instructions.Stage) (r recipe, out string, err error) {
	r.arguments = map[string]string{}
	for _, command := range stage.Commands {
		switch c := command.(type) {
		case *instructions.ArgCommand:
			addArguments(r.arguments, c)
		case *instructions.EnvCommand:
			for _, pair := range c.Env {
				if pair.Key != outVariable {
					return r, "", fmt.Errorf("ENV %s: only %s is known", pair.Key, outVariable)
				}
				out = pair.Value
			}
		case *instructions.RunCommand:
			r.commands = append(r.commands, strings.Join(c.CmdLine, " "))
		case *instructions.WorkdirCommand, *instructions.CopyCommand: // the source's folder is here already
		default:
			return r, "", fmt.Errorf("%s is not understood", command.Name())
		}
	}
	if out == "" || len(r.commands) == 0 {
		return r, "", fmt.Errorf("set ENV %s and RUN what builds", outVariable)
	}
	return r, out, nil
}

func readTarget(stage instructions.Stage, build, out string) (target, error) {
	t := target{name: stage.Name, arguments: map[string]string{}}
	if stage.BaseName != "scratch" {
		return t, fmt.Errorf("it is made from %s: use scratch", stage.BaseName)
	}
	for _, command := range stage.Commands {
		switch c := command.(type) {
		case *instructions.ArgCommand:
			addArguments(t.arguments, c)
		case *instructions.LabelCommand:
			t.labels = append(t.labels, c.Labels...)
		case *instructions.CopyCommand:
			from, inOut := strings.CutPrefix(strings.Join(c.SourcePaths, " "), out+"/")
			if c.From != build || !inOut || !strings.HasPrefix(c.DestPath, "/") {
				return t, fmt.Errorf("%s: use COPY --from=%s %s/NAME /NAME", c, build, out)
			}
			t.files = append(t.files, copied{from, c.DestPath})
		case *instructions.UserCommand:
			t.user = c.User
		case *instructions.EntrypointCommand:
			if c.PrependShell {
				return t, errors.New("the entrypoint needs a shell: use a list")
			}
			t.entrypoint = c.CmdLine
		default:
			return t, fmt.Errorf("%s is not understood", command.Name())
		}
	}
	return t, nil
}

func addArguments(to map[string]string, c *instructions.ArgCommand) {
	for _, arg := range c.Args {
		to[arg.Key] = ""
		if arg.Value != nil {
			to[arg.Key] = *arg.Value
		}
	}
}

// given are the declared arguments, with the values that are given.
func given(declared, values map[string]string) map[string]string {
	all := maps.Clone(declared)
	for name := range all {
		if v, ok := values[name]; ok {
			all[name] = v
		}
	}
	return all
}

// build runs what the build stage runs, in the source's folder, with its output in the folder out.
func (r recipe) build(ctx context.Context, source, out string, values map[string]string) error {
	env := append(os.Environ(), outVariable+"="+out)
	for name, value := range given(r.arguments, values) {
		env = append(env, name+"="+value)
	}
	for _, command := range r.commands {
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Dir, cmd.Env = source, env
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("run %q: %w", command, err)
		}
	}
	return nil
}

// labelsOf are the target's labels, with the arguments in them.
func (t target) labelsOf(values map[string]string) (map[string]string, error) {
	var env []string
	for name, value := range given(t.arguments, values) {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	words := shell.NewLex('\\')
	all := map[string]string{}
	for _, pair := range t.labels {
		// the parser leaves quotes to this
		value, _, err := words.ProcessWord(pair.Value, shell.EnvsFromSlice(env))
		if err != nil {
			return nil, fmt.Errorf("label %s: %w", pair.Key, err)
		}
		all[pair.Key] = value
	}
	return all, nil
}
