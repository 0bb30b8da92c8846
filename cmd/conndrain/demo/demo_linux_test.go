package demo

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// told is what json tells of a run, with times as numbers.
type told struct {
	Seed      uint64
	Reason    string
	Released  float64 `json:"releasedSeconds"`
	Downloads []struct {
		Name     string
		Begun    float64 `json:"begunSeconds"`
		Ended    float64 `json:"endedSeconds"`
		Bytes    int64
		Complete bool
	}
	Timeline []struct {
		After           float64 `json:"afterSeconds"`
		Known           bool
		Open, Idle, New int
	}
	Idle struct {
		Sessions    int
		Quiet       float64 `json:"quietSeconds"`
		OpenWithout int     `json:"openWithoutIdleAfter"`
	}
	Uncounted uncounted
	Table     []struct {
		What     string
		Released float64 `json:"releasedSeconds"`
		Cut      int
		Wasted   float64 `json:"wastedSeconds"`
	}
}

// labLinks are the links of the host that have names of the demo's.
func labLinks(t *testing.T) []string {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range all {
		if strings.HasPrefix(l.Name, "to-") {
			names = append(names, l.Name)
		}
	}
	return names
}

// A whole run, as root and as a user without rights, side by side.
func TestRun(t *testing.T) {
	for name, uid := range map[string]uint32{"root": 0, "nobody": nobody} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			links := labLinks(t)
			d := newDemo(t, uid, "--seed=3", "--output=json")
			if err := d.Run(); err != nil {
				t.Fatalf("%v\n%s", err, d.stderr.String())
			}
			d.mustBeGone(t)
			if diff := cmp.Diff(links, labLinks(t)); diff != "" {
				t.Errorf("links of the host:\n%s", diff)
			}
			if strings.Count(d.stdout.String(), "\n") != 1 {
				t.Errorf("stdout is not one line:\n%s", d.stdout.String())
			}
			var r told
			if err := json.Unmarshal(d.stdout.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			checkRun(t, r)
			for _, want := range []string{"The pod is deleted.", "H comes late", "sleep 30", "by --idle-after 3s"} {
				if !strings.Contains(d.stderr.String(), want) {
					t.Errorf("nothing of %q on stderr:\n%s", want, d.stderr.String())
				}
			}
		})
	}
}

func checkRun(t *testing.T, r told) {
	t.Helper()
	plan := newPlan(3)
	if r.Seed != 3 || r.Reason != "Drained" || len(r.Downloads) != len(plan) {
		t.Fatalf("seed %d, reason %s, %d downloads", r.Seed, r.Reason, len(r.Downloads))
	}
	last := 0.0
	for i, d := range r.Downloads {
		p := plan[i]
		last = max(last, d.Ended)
		if d.Name != p.name || !d.Complete || d.Bytes != p.size {
			t.Errorf("download %+v, want %s whole, %d bytes", d, p.name, p.size)
		}
		if p.late() == (d.Begun < 0) {
			t.Errorf("download %s begins at %.3f s, planned %s", d.Name, d.Begun, p.begin)
		}
		if d.Ended-d.Begun < (p.length - 500*time.Millisecond).Seconds() {
			t.Errorf("download %s took only %.3f s of %s", d.Name, d.Ended-d.Begun, p.length)
		}
	}
	// The kernel knows of an end a little earlier than the client.
	if r.Released < last-1 {
		t.Errorf("released at %.3f s, the last download ended at %.3f s", r.Released, last)
	}
	most := 0
	for _, m := range r.Timeline {
		most = max(most, m.Open)
	}
	// Seven downloads and the keep-alive, unless the machine is very slow.
	if most < 5 {
		t.Errorf("at most %d sessions were seen open", most)
	}
	end := r.Timeline[len(r.Timeline)-1]
	if !end.Known || end.Open != 0 || end.Idle != 1 || end.New != 1 || end.After != r.Released {
		t.Errorf("the wait ended with %+v", end)
	}
	for i, m := range r.Timeline[1:] {
		if m.After <= r.Timeline[i].After || m.New < r.Timeline[i].New {
			t.Errorf("%+v follows %+v", m, r.Timeline[i])
		}
	}
	if r.Idle.Sessions != 1 || r.Idle.OpenWithout != 1 || r.Idle.Quiet < 3 {
		t.Errorf("idle: %+v", r.Idle)
	}
	if r.Uncounted != (uncounted{Metrics: 1, Outbound: 1}) {
		t.Errorf("uncounted: %+v", r.Uncounted)
	}
	checkTable(t, r)
}

// checkTable computes the table from what was recorded, by other words.
func checkTable(t *testing.T, r told) {
	t.Helper()
	last := 0.0
	for _, d := range r.Downloads {
		last = max(last, d.Ended)
	}
	after := func(at float64) int {
		n := 0
		for _, d := range r.Downloads {
			if d.Ended > at {
				n++
			}
		}
		return n
	}
	near := func(a, b float64) bool { return a-b < 0.002 && b-a < 0.002 }
	if len(r.Table) != 3 {
		t.Fatalf("table: %+v", r.Table)
	}
	for i, want := range []struct {
		what string
		at   float64
		cut  int
	}{{"sleep 5", 5, after(5)}, {"sleep 30", 30, after(30)}, {"conndrain", r.Released, 0}} {
		got := r.Table[i]
		if got.What != want.what || !near(got.Released, want.at) || got.Cut != want.cut || !near(got.Wasted, max(0, want.at-last)) {
			t.Errorf("table has %+v, want %+v and %.3f s wasted", got, want, max(0, want.at-last))
		}
	}
	if r.Table[0].Cut == 0 {
		t.Error("sleep 5 cuts nothing: the demo shows nothing")
	}
}

// Ctrl-C, at the start and in the middle.
func TestCancel(t *testing.T) {
	for name, uid := range map[string]uint32{"root": 0, "nobody": nobody} {
		for _, at := range []string{"A pod is deleted", "1 s "} {
			t.Run(name+" at "+at, func(t *testing.T) {
				t.Parallel()
				d := newDemo(t, uid)
				wait := d.startUntil(t, at)
				if err := d.Process.Signal(syscall.SIGINT); err != nil {
					t.Fatal(err)
				}
				_ = wait()
				if got := d.ProcessState.ExitCode(); got != int(errCancelled) {
					t.Errorf("exit code %d, want %d: %s", got, errCancelled, d.stderr.String())
				}
				d.mustBeGone(t)
				if got := d.stderr.String(); got != "Cancelled: all that was built is gone again.\n" {
					t.Errorf("stderr: %q", got)
				}
			})
		}
	}
}

// Nobody can be told of a SIGKILL; the process in the user namespace goes too.
func TestKill(t *testing.T) {
	for name, uid := range map[string]uint32{"root": 0, "nobody": nobody} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDemo(t, uid)
			d.startUntil(t, "1 s ")
			if uid != 0 && len(d.running(t)) < 2 {
				t.Error("there is no process in a user namespace")
			}
			if err := d.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = d.Wait()
			d.mustBeGone(t)
		})
	}
}

func TestForbiddenUserNamespaces(t *testing.T) {
	d := newDemo(t, 0)
	d.Env = append(d.Env, childEnv+"=jail")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: nobody, HostID: nobody, Size: 1}}
	d.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	d.SysProcAttr.UidMappings, d.SysProcAttr.GidMappings = ids, ids
	d.SysProcAttr.GidMappingsEnableSetgroups = true
	_ = d.Run()
	if got := d.ProcessState.ExitCode(); got != 1 {
		t.Errorf("exit code %d, want 1", got)
	}
	for _, want := range []string{"does not let user 65534", "run the demo as root", "sysctl -w user.max_user_namespaces=10000"} {
		if !strings.Contains(d.stderr.String(), want) {
			t.Errorf("nothing of %q in: %s", want, d.stderr.String())
		}
	}
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--output xml": `unknown output "xml": use text or json`,
		"--seed x":     "non-negative integer",
		"extra":        "unknown command",
	} {
		cmd := Command()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// In this process, so that goroutines that stay would show.
func TestPlayEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := &cancelAt{text: "The pod is deleted.", cancel: cancel}
	if _, err := play(ctx, &text{w: w}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// cancelAt cancels when a text is written.
type cancelAt struct {
	text   string
	cancel context.CancelFunc
}

func (c *cancelAt) Write(b []byte) (int, error) {
	if strings.Contains(string(b), c.text) {
		c.cancel()
	}
	return len(b), nil
}

// A screen that is gone ends the demo with the error.
func TestPlayEndsWithItsScreen(t *testing.T) {
	_, err := play(t.Context(), &text{w: failing{}}, 1)
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want %v", err, io.ErrClosedPipe)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
