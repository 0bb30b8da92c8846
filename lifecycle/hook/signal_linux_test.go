package hook

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// A signal goes to the first process of the container, and not to the hook itself. A
// namespace of processes is made for that, whose first one is a shell.
func TestNotifySignalsTheFirstProcess(t *testing.T) {
	t.Parallel()
	const script = `trap 'echo told; exit 0' USR1; "$0" & wait; echo "not told"`
	first := exec.Command("/bin/sh", "-c", script, os.Args[0])
	first.Env = append(os.Environ(), hookEnv+"=1")
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	out, err := first.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "told" {
		t.Errorf("it says %q, %v", out, err)
	}
}
