package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// program is this process's own binary.
const program = "/proc/self/exe"

// errFolder is a command line that does not say where to copy to.
var errFolder = errors.New("copy: name one folder: prestop copy /conndrain")

// copyTo puts this binary into a folder, as prestop, for another container to run:
// an init container does so, into a volume. A file that was there is replaced in
// one step. An error must fail the container: without its hook a pod would start
// all the same, and end without a wait.
func copyTo(args []string) error {
	switch {
	case len(args) == 1 && (args[0] == "--help" || args[0] == "-help" || args[0] == "-h"):
		return errHelp
	case len(args) != 1 || args[0] == "":
		return errFolder
	}
	from, err := os.Open(program)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	defer from.Close()
	to, err := os.CreateTemp(args[0], ".prestop-")
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	defer os.Remove(to.Name()) // nothing is there any more once it has its name
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Chmod(0o755), to.Close()); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	if err := os.Rename(to.Name(), filepath.Join(args[0], "prestop")); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}
