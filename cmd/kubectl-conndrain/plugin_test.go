package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/conndrain/conndrain/lifecycle"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeCluster has helpers that answer what they are told to.
type fakeCluster struct {
	api *fake.Clientset

	mu sync.Mutex
	// status is what each node's helper says, fault why it cannot be asked.
	status map[string]lifecycle.NodeStatus
	fault  map[string]error
	stderr map[string]string
	// commands are those that were run, without status.
	commands []string
	screen   bool
}

func (f *fakeCluster) run(_ context.Context, pod *corev1.Pod, command []string, stdout, stderr io.Writer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := pod.Spec.NodeName
	if err := f.fault[node]; err != nil {
		fmt.Fprint(stderr, f.stderr[node])
		return err
	}
	s := f.status[node]
	if command[1] == "status" {
		return json.NewEncoder(stdout).Encode(s)
	}
	f.commands = append(f.commands, node+": "+strings.Join(command[1:], " "))
	a := lifecycle.ReleaseAnswer{Released: []lifecycle.DrainStatus{}}
	text := strings.Join(command, " ")
	for _, d := range s.Drains {
		named := strings.Contains(text, "--pod "+d.Namespace+"/"+d.Pod)
		all := strings.Contains(text, "--all") && d.Phase != "released" &&
			(!strings.Contains(text, "--namespace") || strings.Contains(text, "--namespace "+d.Namespace))
		if !named && !all {
			continue
		}
		if d.Phase != "released" {
			d.Phase, d.Reason = "released", lifecycle.ReleasedByUser
		}
		a.Released = append(a.Released, d)
	}
	return json.NewEncoder(stdout).Encode(a)
}

// newFake is a cluster of three nodes: n1 drains, n2 does not, and n3's helper is
// away.
func newFake() *fakeCluster {
	f := &fakeCluster{
		api:    fake.NewClientset(),
		status: make(map[string]lifecycle.NodeStatus), fault: make(map[string]error), stderr: make(map[string]string),
	}
	for _, node := range []string{"n1", "n2", "n3"} {
		f.add(helperPod(node))
		f.status[node] = lifecycle.NodeStatus{Node: node, Version: "v0.4.0", Drains: []lifecycle.DrainStatus{}}
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f.status["n1"] = lifecycle.NodeStatus{Node: "n1", Version: "v0.4.0", Drains: []lifecycle.DrainStatus{
		{
			Namespace: "shop", Pod: "web-1", UID: "uid-web-1", Phase: "draining", StartedAt: start,
			ElapsedSeconds: 12.3, RemainingSeconds: new(227.7), Source: "conntrack",
			Open: new(3), Idle: new(1), Lost: new(0), New: new(1), Between: new(2),
			Peers: []lifecycle.Peer{
				{Client: netip.MustParseAddrPort("10.0.0.5:40001"), Port: 8080, Protocol: "tcp", State: "open", Request: "between", QuietSeconds: new(2.0)},
				{Client: netip.MustParseAddrPort("10.0.0.6:40002"), Port: 8080, Protocol: "tcp", State: "open"},
				{Client: netip.MustParseAddrPort("[fd00::7]:40003"), Port: 8080, Protocol: "tcp", State: "open", Request: "owes", AgeSeconds: new(4.0), QuietSeconds: new(0.0)},
			},
		},
		{
			Namespace: "shop", Pod: "web-2", UID: "uid-web-2", Phase: "withdrawing", StartedAt: start,
			ElapsedSeconds: 1.2, RemainingSeconds: new(239.0), Source: "conntrack", Unknown: "no snapshot yet",
		},
		{
			Namespace: "mail", Pod: "smtp-0", UID: "uid-smtp-0", Phase: "released", Reason: lifecycle.Drained, StartedAt: start,
			ElapsedSeconds: 61, Source: "conntrack",
			Open: new(0), Idle: new(0), Lost: new(0), New: new(0),
		},
	}}
	for _, d := range f.status["n1"].Drains {
		f.add(appPod(d.Namespace, d.Pod, "n1", true, true))
	}
	f.add(appPod("shop", "plain", "n1", true, false))
	f.add(appPod("shop", "serving", "n2", false, true))
	f.add(appPod("shop", "quiet", "n2", true, true))
	f.add(appPod("shop", "pending", "", false, true))
	f.api.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
			UserInfo: authenticationv1.UserInfo{Username: "alice@example.com"},
		}}, nil
	})
	return f
}

func (f *fakeCluster) add(pod *corev1.Pod) {
	if err := f.api.Tracker().Add(pod); err != nil {
		panic(err)
	}
}

func helperPod(node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "conndrain-system", Name: "conndrain-node-" + node,
			Labels: map[string]string{"app.kubernetes.io/name": "conndrain-node"},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func appPod(namespace, name, node string, terminating, hook bool) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "web"}}},
	}
	if terminating {
		now := metav1.Now()
		pod.DeletionTimestamp = &now
		pod.Finalizers = []string{"test"}
	}
	if hook {
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
			Exec: &corev1.ExecAction{Command: []string{"/conndrain/prestop"}},
		}}
	}
	return pod
}

// call runs one command line and returns what a person sees.
func (f *fakeCluster) call(ctx context.Context, stdin string, args ...string) string {
	streams, in, out, errOut := genericiooptions.NewTestIOStreams()
	in.WriteString(stdin)
	p := &plugin{streams: streams, interactive: stdin != "", screen: f.screen}
	p.connect = func() (*cluster, error) {
		namespace := "shop"
		if *p.kube.Namespace != "" {
			namespace = *p.kube.Namespace
		}
		return &cluster{client: f.api, run: f, namespace: namespace, user: "kube-user"}, nil
	}
	code := p.execute(ctx, args)
	var b bytes.Buffer
	fmt.Fprintf(&b, "$ kubectl conndrain %s\n", strings.Join(args, " "))
	b.Write(out.Bytes())
	for line := range strings.Lines(errOut.String()) {
		fmt.Fprintf(&b, "! %s", line)
	}
	if n := b.Len(); n > 0 && b.Bytes()[n-1] != '\n' {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "exit %d\n", code)
	return b.String()
}

// ran are the commands that were run, but status. Those for all nodes are run at the
// same time, so they are in no order.
func (f *fakeCluster) ran() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	slices.Sort(f.commands)
	return strings.Join(f.commands, "\n") + "\n"
}

// golden compares with a file, or writes it with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func (f *fakeCluster) calls(t *testing.T, lines ...string) string {
	t.Helper()
	var b strings.Builder
	for _, line := range lines {
		b.WriteString(f.call(t.Context(), "", strings.Split(line, " ")...) + "\n")
	}
	return b.String()
}

func TestStatus(t *testing.T) {
	golden(t, "status", newFake().calls(t,
		"status", "status -A", "status -n mail", "status -n empty", "status n1", "status n1 -n mail", "status node/n2",
		"status pod/web-1", "status pod/smtp-0 -n mail", "status -o json -n mail", "status pod/web-2 --output json",
		// what is not there, and why
		"status pod/plain", "status pod/serving", "status pod/quiet", "status pod/none", "status pod/pending", "status n9",
		// what makes no sense
		"status a b", "status svc/web", "status pod/", "status -o yaml", "status -A -n shop", "status -A pod/web-1", "stauts",
	))
}

// A helper that cannot be asked is told of, and what the others say is shown.
func TestStatusOfHelpersThatCannotBeAsked(t *testing.T) {
	f := newFake()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "conndrain-node-n2",
		errors.New(`User "bob" cannot create resource "pods/exec" in API group "" in the namespace "conndrain-system"`))
	f.fault["n2"] = forbidden
	f.fault["n3"], f.stderr["n3"] = errors.New("command terminated with exit code 1"), "conndrain-node: ask the helper: connection refused\n"
	away := helperPod("n4")
	away.Status.Phase = corev1.PodPending
	f.add(away)
	s := f.status["n1"]
	s.Disabled, s.NotReady = true, []string{"sessions cannot be read: it needs CAP_NET_ADMIN"}
	f.status["n1"] = s
	golden(t, "unreachable", f.calls(t, "status -A", "status n3", "status -A -o json", "status n2", "release --all"))
}

func TestStatusWithoutHelpers(t *testing.T) {
	f := &fakeCluster{api: fake.NewClientset()}
	golden(t, "nohelpers", f.calls(t, "status -A", "status --helper-namespace kube-system", "release --all"))
}

func TestNothingDrains(t *testing.T) {
	f := newFake()
	f.status["n1"] = f.status["n2"]
	golden(t, "nothing", f.calls(t, "status", "status -A", "status -A -o json", "release --all", "release --node n1 -o json"))
}

func TestRelease(t *testing.T) {
	f := newFake()
	got := f.calls(t,
		"release pod/web-1 --reason stuck", "release pod/web-1 pod/web-2", "release pod/smtp-0 -n mail", "release pod/web-1 -o json",
		"release --all", "release --all -n mail", "release --node n1 --yes",
		"release pod/plain", "release pod/serving", "release pod/quiet", "release pod/none pod/web-1",
		"release", "release web-1", "release --all --node n1", "release --all pod/web-1", "release --node n9",
	)
	got += f.ran()
	golden(t, "release", got)
}

func TestReleaseAsksOnATerminal(t *testing.T) {
	f := newFake()
	var b strings.Builder
	for _, answer := range []string{"n\n", "\n", "y\n"} {
		b.WriteString(f.call(t.Context(), answer, "release", "--node", "n1") + "\n")
	}
	b.WriteString(f.call(t.Context(), "n\n", "release", "--all", "--yes") + "\n")
	b.WriteString(f.ran())
	golden(t, "asks", b.String())
}

// Whoever the API does not know by name is called what the kubeconfig calls them.
func TestCallerWithoutAReview(t *testing.T) {
	f := newFake()
	f.api.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("not found")
	})
	f.call(t.Context(), "", "release", "pod/web-1")
	if len(f.commands) != 1 || !strings.Contains(f.commands[0], "--by kube-user ") {
		t.Errorf("commands %q, want one by kube-user", f.commands)
	}
}

// A watch ends when its pod is gone, and shows each state once where nothing is
// written over.
func TestWatchUntilThePodIsGone(t *testing.T) {
	t.Parallel()
	f := goneAfterTwoLooks()
	golden(t, "watch", f.call(t.Context(), "", "status", "pod/web-1", "--watch"))
}

// On a terminal each look is written over the last one.
func TestWatchOnATerminal(t *testing.T) {
	t.Parallel()
	f := goneAfterTwoLooks()
	f.screen = true
	got := f.call(t.Context(), "", "status", "pod/web-1", "--watch")
	if n := strings.Count(got, "\x1b[H\x1b[J"); n != 2 || strings.Count(got, "Held by:") != 2 {
		t.Errorf("written over %d times, want twice:\n%s", n, got)
	}
}

func goneAfterTwoLooks() *fakeCluster {
	f := newFake()
	looks := 0
	f.api.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		looks++
		if looks > 2 {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web-1")
		}
		return false, nil, nil
	})
	return f
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := newFake().call(ctx, "", "status", "-A", "--watch"); !strings.HasSuffix(got, "exit 130\n") {
		t.Errorf("got %s, want exit 130", got)
	}
}

func TestHelpAndCompletion(t *testing.T) {
	golden(t, "help", newFake().calls(t,
		"--output", "status --help", "release --help",
		"__complete status ", "__complete status p", "__complete status pod/", "__complete release ", "__complete release pod/w",
		"__complete release --node ", "__complete status --output ", "__complete st",
	))
}
