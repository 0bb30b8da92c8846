package node

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conndrain/conndrain/conntrack"
)

// These tests run the real hook as a process inside of the pod's network namespace.

// built is a folder with the program prestop; TestMain removes it.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "conndrain-prestop-")
	if err != nil {
		return "", err
	}
	builtDir = dir
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "prestop"), "github.com/conndrain/conndrain/cmd/prestop")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build prestop: %w\n%s", err, out)
	}
	return dir, nil
})

var builtDir string

// process is a prestop that runs in the pod.
type process struct {
	*testing.T
	cmd   *exec.Cmd
	begun time.Time
	ended chan struct{}
	err   error
	took  time.Duration

	mu     sync.Mutex
	stderr bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// prestop starts the program in the pod, as a container of Kubernetes with HOST_IP.
func (s *scene) prestop(args ...string) *process {
	s.Helper()
	dir, err := built()
	must(s.T, err)
	p := &process{T: s.T, begun: time.Now(), ended: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(dir, "prestop"), args...)
	p.cmd.Env = []string{"KUBERNETES_SERVICE_HOST=10.96.0.1", "HOST_IP=" + s.lab.GatewayAddr.String()}
	p.cmd.Stderr = p
	must(s.T, s.lab.Pod.Do(p.cmd.Start))
	go func() {
		p.err = p.cmd.Wait()
		p.took = time.Since(p.begun)
		close(p.ended)
	}()
	s.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		s.Logf("prestop said:\n%s", p.said())
	})
	return p
}

// returns waits for its end, which must be a good one.
func (p *process) returns() time.Duration {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Fatalf("prestop goes on after %s:\n%s", patience, p.said())
	}
	if p.err != nil {
		p.Errorf("prestop ended with %v", p.err)
	}
	return p.took
}

// holds fails the test if it ends within the time.
func (p *process) holds(d time.Duration) {
	p.Helper()
	select {
	case <-p.ended:
		p.Fatalf("returned after %s:\n%s", p.took, p.said())
	case <-time.After(d):
	}
}

// says waits until it has said all the words.
func (s *scene) says(p *process, words ...string) {
	s.Helper()
	s.eventually(fmt.Sprintf("prestop says %q", words), func() error {
		for _, w := range words {
			if !strings.Contains(p.said(), w) {
				return fmt.Errorf("it says\n%s", p.said())
			}
		}
		return nil
	})
}

// kill ends the helper at once, as far as hooks can see.
func (s *scene) kill() {
	s.Helper()
	s.stop()
	if err := <-s.done; err != nil {
		s.Error(err)
	}
	s.done <- nil
}

// revive starts another helper, which knows nothing of the one before.
func (s *scene) revive() {
	s.Helper()
	config := s.helper.config
	config.Logger = slog.New(slog.NewTextHandler(s.Output(), nil))
	h, err := New(config, s.api, conntrack.NewReader(conntrack.Config{NetNS: s.lab.Node.FD()}), prometheus.NewRegistry())
	must(s.T, err)
	h.listen, h.own = s.helper.listen, s.helper.own
	s.helper = h
	s.start()
}

// connectTo is a client's connection to an address, untranslated.
func (s *scene) connectTo(l net.Listener, to netip.AddrPort) session {
	s.Helper()
	client, err := s.lab.Client.Dial(s.Context(), "tcp", to.String())
	must(s.T, err)
	server, err := l.Accept()
	must(s.T, err)
	s.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return session{client, server}
}

func (s *scene) listen(port uint16) net.Listener {
	s.Helper()
	l, err := s.lab.Pod.Listen(s.Context(), "tcp", fmt.Sprintf(":%d", port))
	must(s.T, err)
	s.Cleanup(func() { _ = l.Close() })
	return l
}
