package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/lifecycle"
)

func TestMain(m *testing.M) {
	// They wait most of their time, also on a machine with few CPUs.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Built before, because a test's time runs while it is.
	if _, err := built(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	netlab.GuardTable()
	code := m.Run()
	if builtDir != "" {
		_ = os.RemoveAll(builtDir)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience is how long a condition may take on a slow machine.
const patience = 60 * time.Second

// quick is a policy that lets a test see the phases without waiting for long.
var quick = lifecycle.Policy{Settle: 300 * time.Millisecond, SettleMax: 2 * time.Second}

// scene is a helper on the node of a lab, with the lab's pod in an API that only
// remembers. What the pod does and what the kernel says of it is real.
type scene struct {
	*testing.T
	lab    *netlab.Lab
	api    *fake.Clientset
	pod    *corev1.Pod
	helper *Helper
	stop   context.CancelFunc
	done   chan error
	http   *http.Client // inside of the pod
}

var deleteNow = metav1.DeleteOptions{}

const (
	namespace = "shop"
	podName   = "web-1"
)

func newScene(t *testing.T, change func(*corev1.Pod), policy lifecycle.Policy) *scene {
	t.Helper()
	return newSceneIn(t, netlab.LabOptions{}, change, policy)
}

func newSceneIn(t *testing.T, o netlab.LabOptions, change func(*corev1.Pod), policy lifecycle.Policy) *scene {
	t.Helper()
	s := prepareScene(t, o, change, func(c *Config) { c.Policy = policy })
	s.start()
	return s
}

// prepareScene makes a scene whose helper does not run yet.
func prepareScene(t *testing.T, o netlab.LabOptions, change func(*corev1.Pod), configure func(*Config)) *scene {
	t.Helper()
	lab, err := netlab.NewLab(o)
	must(t, err)
	s := &scene{T: t, lab: lab, pod: newPod(lab, "uid-1")}
	if change != nil {
		change(s.pod)
	}
	s.api = fake.NewClientset(s.pod, newSlice(s.pod, true), newNode(""))
	c := Config{
		Node: "n1", Version: "v0-test", Addresses: []netip.Addr{lab.GatewayAddr}, Policy: quick,
		LocalSocket: filepath.Join(t.TempDir(), "s", "h"), // a socket has a short path
		Logger:      slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	configure(&c)
	s.helper, err = New(c, s.api, conntrack.NewReader(conntrack.Config{NetNS: lab.Node.FD()}), prometheus.NewRegistry())
	must(t, err)
	s.helper.listen = lab.Node.Listen
	s.helper.own = func() ([]netip.Addr, error) { return []netip.Addr{lab.NodeAddr, lab.GatewayAddr}, nil }
	s.http = &http.Client{Transport: &http.Transport{DialContext: lab.Pod.Dial}}
	t.Cleanup(func() {
		s.http.CloseIdleConnections()
		if s.stop != nil {
			s.stop()
			if err := <-s.done; err != nil {
				t.Error(err)
			}
		}
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// start runs the helper and waits until it is ready.
func (s *scene) start() {
	s.Helper()
	s.run()
	s.eventually("the helper is ready", func() error { return s.ready(nil) })
}

// ready asks the helper whether it is, from the pod where no other way is given.
func (s *scene) ready(client *http.Client) error {
	resp, err := cmp.Or(client, s.http).Get("http://" + netip.AddrPortFrom(s.lab.GatewayAddr, lifecycle.MetricsPort).String() + "/readyz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s: %s", resp.Status, b)
	}
	return nil
}

func (s *scene) run() {
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.done = stop, make(chan error, 1)
	go func() { s.done <- s.helper.Run(ctx) }()
}

func newPod(lab *netlab.Lab, uid types.UID) *corev1.Pod {
	grace := int64(60)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: podName, UID: uid},
		Spec: corev1.PodSpec{
			NodeName: "n1", TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name:      "web",
				Lifecycle: execHook("/conndrain/prestop"),
				Ports:     []corev1.ContainerPort{{Name: "http", ContainerPort: int32(lab.PodPort)}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")},
				}},
			}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: lab.PodAddr.String()}}},
	}
}

// newNode is Ready, or not for the reason that the message gives.
func newNode(message string) *corev1.Node {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: "kubelet is posting ready status"}
	if message != "" {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "KubeletNotReady", message
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}},
	}
}

func newSlice(pod *corev1.Pod, ready bool) *discoveryv1.EndpointSlice {
	name, number, terminating := "http", pod.Spec.Containers[0].Ports[0].ContainerPort, !ready
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "web-abc"},
		Ports:      []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{pod.Status.PodIPs[0].IP},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: pod.Name, UID: pod.UID},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Terminating: &terminating},
		}},
	}
}

// delete makes the pod terminate with a grace period.
func (s *scene) delete(grace int64) {
	s.Helper()
	now := metav1.Now()
	s.pod = s.pod.DeepCopy()
	s.pod.DeletionTimestamp, s.pod.DeletionGracePeriodSeconds = &now, &grace
	_, err := s.api.CoreV1().Pods(namespace).Update(s.Context(), s.pod, metav1.UpdateOptions{})
	must(s.T, err)
}

// annotate changes the pod's annotations, as a person does while it is held.
func (s *scene) annotate(all map[string]string) {
	s.Helper()
	s.pod = s.pod.DeepCopy()
	s.pod.Annotations = all
	_, err := s.api.CoreV1().Pods(namespace).Update(s.Context(), s.pod, metav1.UpdateOptions{})
	must(s.T, err)
}

// withdraw makes the slices send nothing new to the pod.
func (s *scene) withdraw() {
	s.Helper()
	_, err := s.api.DiscoveryV1().EndpointSlices(namespace).Update(s.Context(), newSlice(s.pod, false), metav1.UpdateOptions{})
	must(s.T, err)
}

// serve is the pod's server; connect is a client's connection through the Service.
func (s *scene) serve() net.Listener {
	s.Helper()
	l, err := s.lab.Pod.Listen(s.Context(), "tcp", netip.AddrPortFrom(s.lab.PodAddr, s.lab.PodPort).String())
	must(s.T, err)
	s.Cleanup(func() { _ = l.Close() })
	return l
}

type session struct{ client, server net.Conn }

func (s *scene) connect(l net.Listener) session {
	s.Helper()
	client, err := s.lab.Client.Dial(s.Context(), "tcp", netip.AddrPortFrom(s.lab.ServiceAddr, s.lab.ServicePort).String())
	must(s.T, err)
	server, err := l.Accept()
	must(s.T, err)
	s.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return session{client, server}
}

// end closes the session in an orderly way, the client first.
func (c session) end(t *testing.T) {
	t.Helper()
	must(t, c.client.Close())
	_, err := io.ReadAll(c.server)
	must(t, err)
	must(t, c.server.Close())
}

// ask is one request of a hook.
func (s *scene) ask(r lifecycle.DrainRequest) lifecycle.DrainAnswer {
	s.Helper()
	a, status := s.post(r)
	if status != http.StatusOK {
		s.Fatalf("status %d: %s", status, a.Message)
	}
	return a
}

func (s *scene) post(r lifecycle.DrainRequest) (lifecycle.DrainAnswer, int) {
	s.Helper()
	body, err := json.Marshal(r)
	must(s.T, err)
	resp, err := s.http.Post("http://"+s.address(), "application/json", bytes.NewReader(body))
	must(s.T, err)
	defer resp.Body.Close()
	if got := resp.Header.Get(lifecycle.Header); got != lifecycle.HeaderV1 {
		s.Errorf("header %q, want %q", got, lifecycle.HeaderV1)
	}
	var a lifecycle.DrainAnswer
	must(s.T, json.NewDecoder(resp.Body).Decode(&a))
	return a, resp.StatusCode
}

func (s *scene) address() string {
	return netip.AddrPortFrom(s.lab.GatewayAddr, lifecycle.APIPort).String() + lifecycle.DrainPath
}

// hook asks until it is released, as a hook does, and returns the last answer.
func (s *scene) hook() lifecycle.DrainAnswer {
	s.Helper()
	begin := time.Now()
	for time.Since(begin) < patience {
		a := s.ask(lifecycle.DrainRequest{ElapsedSeconds: time.Since(begin).Seconds(), WaitSeconds: 1})
		if a.Released() {
			return a
		}
	}
	s.Fatalf("not released after %s", patience)
	return lifecycle.DrainAnswer{}
}

// reaches waits until the drain is in the phase with so many sessions.
func (s *scene) reaches(phase lifecycle.Phase, open int) lifecycle.DrainAnswer {
	s.Helper()
	var a lifecycle.DrainAnswer
	s.eventually(fmt.Sprintf("%s with %d open", phase, open), func() error {
		a = s.ask(lifecycle.DrainRequest{})
		if a.Phase != phase.String() || a.Open == nil || *a.Open != open {
			b, _ := json.Marshal(a)
			return fmt.Errorf("answer is %s", b)
		}
		return nil
	})
	return a
}

// events are those of the pod, as "reason: message".
func (s *scene) events() []string {
	s.Helper()
	list, err := s.api.CoreV1().Events(namespace).List(s.Context(), metav1.ListOptions{})
	must(s.T, err)
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return a.FirstTimestamp.Compare(b.FirstTimestamp.Time) })
	var all []string
	for _, e := range list.Items {
		if e.InvolvedObject.UID == s.pod.UID {
			all = append(all, e.Reason+": "+e.Message)
		}
	}
	return all
}

// eventNaming waits for an Event whose text has all the words.
func (s *scene) eventNaming(words ...string) {
	s.Helper()
	s.eventually(fmt.Sprintf("an Event says %q", words), func() error {
		for _, e := range s.events() {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e, w) }) {
				return nil
			}
		}
		return fmt.Errorf("events are %q", s.events())
	})
}

// metric waits until the line is among the helper's metrics.
func (s *scene) metric(line string) {
	s.Helper()
	s.eventually("metric "+line, func() error {
		if all := s.metrics(); !slices.Contains(strings.Split(all, "\n"), line) {
			return fmt.Errorf("metrics are\n%s", all)
		}
		return nil
	})
}

// metrics are those of the helper now.
func (s *scene) metrics() string {
	s.Helper()
	resp, err := s.http.Get("http://" + netip.AddrPortFrom(s.lab.GatewayAddr, lifecycle.MetricsPort).String() + "/metrics")
	must(s.T, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(s.T, err)
	return string(b)
}

func (s *scene) eventually(what string, try func() error) {
	s.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			s.Fatalf("still not after %s: %s: %v", patience, what, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
