package build

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// hostPackages is what this machine needs of Debian; the programs that they bring are in hostTools.
var hostPackages = []string{"systemd-container", "debootstrap", "util-linux"}

var hostTools = []string{"systemd-nspawn", "debootstrap", "nsenter"}

// installPackages installs what is missing of hostPackages and of nothing else.
func installPackages(ctx context.Context, say func(string, ...any)) error {
	if len(missingTools()) == 0 {
		return nil
	}
	say("installing %s", strings.Join(hostPackages, ", "))
	for _, args := range [][]string{
		{"update"},
		append([]string{"install", "--yes", "--no-install-recommends"}, hostPackages...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("install Debian packages %s: apt-get %s: %w\n%s",
				strings.Join(hostPackages, " "), args[0], err, out)
		}
	}
	if missing := missingTools(); len(missing) > 0 {
		return fmt.Errorf("find %s after the install of %s: look at what apt-get says", strings.Join(missing, ", "),
			strings.Join(hostPackages, ", "))
	}
	return nil
}

func missingTools() []string {
	var missing []string
	for _, tool := range hostTools {
		if _, err := exec.LookPath(tool); err != nil {
			missing = append(missing, tool)
		}
	}
	return missing
}
