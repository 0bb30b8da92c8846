package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/lifecycle"
)

// local asks the helper at its Unix socket.
func (s *scene) local(method, path string, request, answer any) {
	s.Helper()
	body, err := json.Marshal(request)
	must(s.T, err)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.helper.config.LocalSocket)
		},
	}}
	r, err := http.NewRequestWithContext(s.Context(), method, "http://helper"+path, bytes.NewReader(body))
	must(s.T, err)
	resp, err := client.Do(r)
	must(s.T, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.Fatalf("%s %s: %s", method, path, resp.Status)
	}
	must(s.T, json.NewDecoder(resp.Body).Decode(answer))
}

func (s *scene) status() lifecycle.NodeStatus {
	s.Helper()
	var n lifecycle.NodeStatus
	s.local(http.MethodGet, lifecycle.StatusPath, nil, &n)
	return n
}

func (s *scene) release(r lifecycle.ReleaseRequest) lifecycle.ReleaseAnswer {
	s.Helper()
	var a lifecycle.ReleaseAnswer
	s.local(http.MethodPost, lifecycle.ReleasePath, r, &a)
	return a
}

func TestStatusTellsWhatHoldsAPod(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	want := lifecycle.NodeStatus{Node: "n1", Version: "v0-test", Drains: []lifecycle.DrainStatus{}}
	if diff := cmp.Diff(want, s.status()); diff != "" {
		t.Errorf("status of a node where nothing drains (-want +got):\n%s", diff)
	}
	l := s.serve()
	older := s.connect(l)
	s.delete(60)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	newer := s.connect(l)
	s.reaches(lifecycle.Draining, 2)

	got := s.status()
	if len(got.Drains) != 1 {
		t.Fatalf("status %+v, want one drain", got)
	}
	d := got.Drains[0]
	if age := time.Since(d.StartedAt); age < 0 || age > patience || d.ElapsedSeconds <= 0 {
		t.Errorf("started at %s, %v s ago", d.StartedAt, d.ElapsedSeconds)
	}
	if d.RemainingSeconds == nil || *d.RemainingSeconds > 50 || *d.RemainingSeconds < 5 {
		t.Errorf("remaining %v, want less than 50 s", d.RemainingSeconds)
	}
	if len(d.Peers) != 2 || d.Peers[0].AgeSeconds != nil || d.Peers[1].AgeSeconds == nil {
		t.Fatalf("peers %+v, want the older one without an age, then the newer one with it", d.Peers)
	}
	d.StartedAt, d.ElapsedSeconds, d.RemainingSeconds = time.Time{}, 0, nil
	for i := range d.Peers {
		d.Peers[i].AgeSeconds, d.Peers[i].QuietSeconds = nil, nil
	}
	one, two, none := 1, 2, 0
	peer := func(c session) lifecycle.Peer {
		return lifecycle.Peer{
			Client: netip.MustParseAddrPort(c.client.LocalAddr().String()), Port: s.lab.PodPort, Protocol: "tcp", State: "open",
		}
	}
	if diff := cmp.Diff(lifecycle.DrainStatus{
		Namespace: namespace, Pod: podName, UID: "uid-1", Phase: "draining", Source: "conntrack",
		Open: &two, Idle: &none, Lost: &none, New: &one, Peers: []lifecycle.Peer{peer(older), peer(newer)},
	}, d, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("status of the drain (-want +got):\n%s", diff)
	}
	older.end(t)
	newer.end(t)
	s.hook()
	if d := s.status().Drains[0]; d.Phase != "released" || d.Reason != lifecycle.Drained || len(d.Peers) != 0 {
		t.Errorf("status after the release %+v", d)
	}
}

func TestReleaseOverTheSocket(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	c := s.connect(s.serve())
	s.delete(900)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	released := make(chan lifecycle.DrainAnswer, 1)
	go func() { released <- s.hook() }()

	other := lifecycle.PodRef{Namespace: namespace, Name: podName, UID: "another"}
	a := s.release(lifecycle.ReleaseRequest{Pods: []lifecycle.PodRef{other}, By: "eve"})
	if diff := cmp.Diff(lifecycle.ReleaseAnswer{Released: []lifecycle.DrainStatus{}, Missing: []lifecycle.PodRef{other}}, a); diff != "" {
		t.Errorf("release of another pod of that name (-want +got):\n%s", diff)
	}
	a = s.release(lifecycle.ReleaseRequest{All: true, Namespace: "elsewhere", By: "eve"})
	if len(a.Released) != 0 {
		t.Errorf("released in another namespace: %+v", a)
	}
	s.reaches(lifecycle.Draining, 1)

	begin := time.Now()
	ref := lifecycle.PodRef{Namespace: namespace, Name: podName}
	a = s.release(lifecycle.ReleaseRequest{Pods: []lifecycle.PodRef{ref}, By: "alice", Why: "it is late"})
	if h := <-released; h.Reason != lifecycle.ReleasedByUser || time.Since(begin) > 5*time.Second {
		t.Errorf("hook got %+v after %s", h, time.Since(begin))
	}
	if len(a.Released) != 1 || len(a.Missing) != 0 {
		t.Fatalf("answer %+v", a)
	}
	d := a.Released[0]
	if n, ok := d.Blocking(); !ok || n != 1 || d.ReleasedBy != "alice" || d.ReleasedFor != "it is late" || d.Reason != lifecycle.ReleasedByUser {
		t.Errorf("released %+v, want one session left, by alice", d)
	}
	if len(d.Peers) != 1 || d.Peers[0].Client.String() != c.client.LocalAddr().String() {
		t.Errorf("peers left %+v", d.Peers)
	}
	s.eventNaming("DrainReleased", "alice", "it is late")

	// Somebody else comes too late, and is told how it was.
	a = s.release(lifecycle.ReleaseRequest{Pods: []lifecycle.PodRef{ref}, By: "bob"})
	if len(a.Released) != 1 || a.Released[0].ReleasedBy != "alice" {
		t.Errorf("a second release: %+v", a)
	}
	a = s.release(lifecycle.ReleaseRequest{All: true, By: "bob"})
	if len(a.Released) != 0 {
		t.Errorf("released again: %+v", a)
	}
}

// The status names the first of many sessions and counts the rest.
func TestStatusIsBounded(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	l := s.serve()
	const n = lifecycle.MaxPeers + 5
	for range n {
		s.connect(l)
	}
	s.delete(900)
	s.withdraw()
	s.reaches(lifecycle.Draining, n)
	if d := s.status().Drains[0]; len(d.Peers) != lifecycle.MaxPeers || d.MorePeers != 5 {
		t.Errorf("%d peers and %d more", len(d.Peers), d.MorePeers)
	}
	s.eventNaming("Draining: Waiting up to", fmt.Sprintf("%d sessions", n), fmt.Sprintf("and %d more", n-maxPeers))
}

// What an earlier helper left is taken over, and a folder that others can enter is not used.
func TestLocalSocketIsTheHelpersOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s", "h")
	old, err := listenLocal(t.Context(), path)
	must(t, err)
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, old.Close())
	next, err := listenLocal(t.Context(), path)
	must(t, err)
	must(t, next.Close())
	info, err := os.Stat(filepath.Dir(path))
	must(t, err)
	if info.Mode().Perm() != 0o700 {
		t.Errorf("folder is %s", info.Mode())
	}
	must(t, os.Chmod(filepath.Dir(path), 0o755))
	if l, err := listenLocal(t.Context(), path); err == nil {
		_ = l.Close()
		t.Error("a folder that is open to others is used")
	}
}

func TestReadyz(t *testing.T) {
	synced, kernel, now := false, error(nil), time.Unix(0, 0)
	asked := 0
	var ears deaf
	r := readiness{
		deaf:   ears.Err,
		synced: func() bool { return synced },
		kernel: func() error { asked++; return kernel },
		now:    func() time.Time { return now },
	}
	is := func(want ...string) {
		t.Helper()
		got := r.faults()
		if len(got) != len(want) {
			t.Fatalf("faults %q, want %q", got, want)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("fault %q, want one that says %q", got[i], want[i])
			}
		}
	}
	is("pods of this node are not known")
	synced = true
	is()
	ears.set("10.0.0.1:10940", errors.New("address already in use"))
	is("cannot listen on 10.0.0.1:10940: address already in use")
	ears.set("10.0.0.1:10940", nil)
	is()
	kernel = errors.New("needs CAP_NET_ADMIN")
	is()
	now = now.Add(kernelEvery)
	is("sessions cannot be read: needs CAP_NET_ADMIN")
	if asked != 2 {
		t.Errorf("the kernel was asked %d times, want 2", asked)
	}
}

// A helper that is not ready says why over HTTP, and lives all the same.
func TestNotReadyIsAlive(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(*corev1.Pod) {}, quick)
	s.helper.deaf.set("10.9.9.9:1", errors.New("address already in use"))
	base := "http://" + netip.AddrPortFrom(s.lab.GatewayAddr, lifecycle.MetricsPort).String()
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/healthz": http.StatusOK} {
		resp, err := s.http.Get(base + path)
		must(t, err)
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != want || want != http.StatusOK && !strings.Contains(b.String(), "10.9.9.9:1: address already in use") {
			t.Errorf("%s: %s %s", path, resp.Status, &b)
		}
	}
	if n := s.status(); len(n.NotReady) != 1 || !strings.Contains(n.NotReady[0], "10.9.9.9") {
		t.Errorf("status %+v", n)
	}
}
