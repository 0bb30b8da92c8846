package node

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/lifecycle"
)

// judge is a hook that can tell requests, as the wire has it. It says what the test
// wants it to.
type judge struct {
	*scene
	begun    time.Time
	can      []string
	mark     string
	says     *lifecycle.RequestReport
	notified *lifecycle.Notified

	mu    sync.Mutex
	lives []session
}

func (s *scene) judge(lives ...session) *judge {
	return &judge{
		scene: s, begun: time.Now(), lives: lives, says: &lifecycle.RequestReport{},
		can: []string{lifecycle.CanJudge, lifecycle.CanRequest, lifecycle.CanSignal},
	}
}

// sees are the pod's sockets from now on.
func (j *judge) sees(lives ...session) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lives = lives
}

func clientOf(c session) netip.AddrPort {
	return netip.MustParseAddrPort(c.server.RemoteAddr().String())
}

// polls asks once, with what the pod's sockets are now.
func (j *judge) polls(wait time.Duration) lifecycle.DrainAnswer {
	j.Helper()
	var inbound []lifecycle.Socket
	j.mu.Lock()
	for _, c := range j.lives {
		inbound = append(inbound, lifecycle.Socket{Local: netip.MustParseAddrPort(c.server.LocalAddr().String()), Peer: clientOf(c)})
	}
	j.mu.Unlock()
	list := lifecycle.NewSocketList([]uint16{j.lab.PodPort}, inbound, nil, nil)
	list.Mark = j.mark
	a := j.ask(lifecycle.DrainRequest{
		ElapsedSeconds: time.Since(j.begun).Seconds(), WaitSeconds: wait.Seconds(),
		Can: j.can, Sockets: &list, Requests: j.says, Notified: j.notified,
	})
	j.mark, j.notified = a.Mark, nil
	return a
}

// permitted polls until it may judge, or may not any more.
func (j *judge) permitted(want bool) lifecycle.DrainAnswer {
	j.Helper()
	var a lifecycle.DrainAnswer
	j.eventually(fmt.Sprintf("the permission: %t", want), func() error {
		if a = j.polls(time.Second); (a.WhenQuiet != nil) != want || a.Released() {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	return a
}

// released polls until it is.
func (j *judge) released() (a lifecycle.DrainAnswer) {
	j.Helper()
	j.eventually("the release", func() error {
		if a = j.polls(time.Second); !a.Released() {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	return a
}

// leaves is its last word.
func (j *judge) leaves(cut int) lifecycle.DrainAnswer {
	j.Helper()
	return j.ask(lifecycle.DrainRequest{ElapsedSeconds: time.Since(j.begun).Seconds(), Leaving: &lifecycle.Leaving{Cut: cut}})
}

func until(value string) func(*corev1.Pod) {
	return annotated(map[string]string{"conndrain.io/until": value})
}

// Whatever else holds the pod takes the permission back at once, from a hook whose
// request is held, and a hook that leaves all the same ends nothing.
func TestPermissionIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(p *corev1.Pod) {
		until("9000=sessions,requests")(p)
		p.Annotations["conndrain.io/ports"] = "http,9000"
	}, quick)
	c := s.connect(s.serve())
	other := s.listen(9000)
	j := s.judge(c)
	s.delete(900)
	s.withdraw()
	j.leaves(0) // before there was a permission
	j.permitted(true)
	held := make(chan lifecycle.DrainAnswer, 1)
	go func() { held <- j.polls(20 * time.Second) }()
	began := time.Now()
	db := s.connectTo(other, netip.AddrPortFrom(s.lab.PodAddr, 9000))
	j.sees(c, db)
	for a := range held {
		if a.WhenQuiet == nil {
			break
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Fatalf("still permitted after %s: %+v", took, a)
		}
		go func() { held <- j.polls(20 * time.Second) }()
	}
	j.leaves(0)
	if a := j.polls(time.Second); a.Released() || a.WhenQuiet != nil {
		t.Fatalf("answer %+v with a session that holds", a)
	}
	db.end(t)
	j.sees(c)
	j.permitted(true)
	j.leaves(0)
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
	s.eventNaming("Drained: No request was in flight on the 1 session left; ")
}

// A UDP session is none of those that a hook can judge.
func TestUDPIsNotJudged(t *testing.T) {
	t.Parallel()
	s := newScene(t, until("requests"), quick)
	server, err := s.lab.Pod.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(s.lab.PodAddr, s.lab.PodPort).String())
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	client, err := s.lab.Client.Dial(t.Context(), "udp", netip.AddrPortFrom(s.lab.ServiceAddr, s.lab.ServicePort).String())
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	send := func() {
		_, err := client.Write([]byte("ping"))
		must(t, err)
	}
	send()
	j := s.judge(s.connect(s.serve()))
	s.delete(900)
	s.withdraw()
	s.reaches(lifecycle.Draining, 2)
	for begin := time.Now(); time.Since(begin) < 3*time.Second; {
		send()
		if a := j.polls(200 * time.Millisecond); a.WhenQuiet != nil {
			t.Fatalf("permitted beside a UDP session: %+v", a.WhenQuiet)
		}
	}
	j.permitted(true) // it is over
}

// The deadline comes whatever is permitted, and an annotation that changes counts at once.
func TestPermissionEnds(t *testing.T) {
	t.Parallel()
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, until("requests"), quick)
		j := s.judge(s.connect(s.serve()))
		s.delete(6)
		s.withdraw()
		j.permitted(true)
		s.eventually("the deadline", func() error {
			if a := j.polls(5 * time.Second); a.Reason != lifecycle.Expired || a.Cut == nil || *a.Cut != 1 {
				return fmt.Errorf("%+v", a)
			}
			return nil
		})
		s.eventNaming("DrainExpired: ", "1 session cut")
	})
	t.Run("annotation", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, until("sessions"), quick)
		j := s.judge(s.connect(s.serve()))
		s.delete(900)
		s.withdraw()
		s.reaches(lifecycle.Draining, 1)
		j.permitted(false)
		s.annotate(map[string]string{"conndrain.io/until": "requests"})
		j.permitted(true)
		s.annotate(map[string]string{"conndrain.io/until": "requests", "conndrain.io/quiet": "1s"})
		s.eventually("another length of silence", func() error {
			if a := j.polls(time.Second); a.WhenQuiet == nil || a.WhenQuiet.QuietSeconds != 1 {
				return fmt.Errorf("%+v", a)
			}
			return nil
		})
		s.annotate(map[string]string{"conndrain.io/until": "sessions"})
		j.permitted(false)
	})
}

// At the deadline it is said of how many of those that held for their requests nobody could
// tell: not of one that holds until it has ended.
func TestUntoldIsSaid(t *testing.T) {
	t.Parallel()
	const told = " nobody could tell whether a request was in flight: "
	for _, tc := range []struct {
		rule, web string
		want      string
	}{
		{"requests", "unknown", ", of 1" + told},
		{"requests", "owes", ""},
		{"requests-strict", "unknown", ", of 1" + told},
	} {
		t.Run(tc.rule+" "+tc.web, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, annotated(map[string]string{"conndrain.io/until": "http=" + tc.rule + ",sessions", "conndrain.io/ports": "http,9000"}), quick)
			c := s.connect(s.serve())
			db := s.connectTo(s.listen(9000), netip.AddrPortFrom(s.lab.PodAddr, 9000))
			j := s.judge(c, db)
			j.says = &lifecycle.RequestReport{Classes: make(map[string]lifecycle.PeerSet), Counts: make(map[string]int)}
			for _, p := range []struct {
				class string
				of    session
			}{{tc.web, c}, {"unknown", db}} {
				if j.says.Classes[p.class] == nil {
					j.says.Classes[p.class] = make(lifecycle.PeerSet)
				}
				j.says.Classes[p.class].Add(clientOf(p.of))
				j.says.Counts[p.class]++
			}
			s.delete(6)
			s.withdraw()
			if a := j.released(); a.Reason != lifecycle.Expired {
				t.Errorf("reason %s, want %s", a.Reason, lifecycle.Expired)
			}
			s.eventNaming("DrainExpired: ", "2 sessions cut, ", tc.want)
			for _, e := range s.events() {
				if tc.want == "" && strings.Contains(e, told) {
					t.Errorf("event %q", e)
				}
			}
		})
	}
}

// Where nothing but settle has held the pod, the Event of its deadline names it.
func TestSettleHeldToTheDeadline(t *testing.T) {
	t.Parallel()
	s := newScene(t, annotated(map[string]string{"conndrain.io/until": "requests", "conndrain.io/settle": "1h"}), quick)
	j := s.judge(s.connect(s.serve()))
	s.delete(6)
	s.withdraw()
	if a := j.released(); a.Reason != lifecycle.Expired {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Expired)
	}
	s.eventNaming("DrainExpired: The time was up after ", " s, before settle and min-delay were over: 1 session cut, ")
}

// A request that is known to be in flight at the deadline makes its session an active one,
// however long nothing was said on it: an answer that takes long is what an alert is for.
func TestSilentRequestIsCut(t *testing.T) {
	t.Parallel()
	s := newScene(t, until("requests"), quick)
	l := s.serve()
	owed, rests := s.connect(l), s.connect(l)
	j := s.judge(owed, rests)
	j.says = &lifecycle.RequestReport{
		Classes: map[string]lifecycle.PeerSet{"owes": {clientOf(owed): {}}, "between": {clientOf(rests): {}}},
		Counts:  map[string]int{"owes": 1, "between": 1},
	}
	s.delete(15)
	s.withdraw()
	if a := j.released(); a.Reason != lifecycle.Expired {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Expired)
	}
	s.eventNaming("DrainExpired: ", "2 sessions cut, 1 of them active, 1 with a request in flight: ")
	s.metric(`conndrain_sessions_cut_total{activity="active"} 1`)
	s.metric(`conndrain_sessions_cut_total{activity="quiet"} 1`)
}

// A helper that is started anew permits nothing before it knows all itself.
func TestPermissionAfterARestart(t *testing.T) {
	t.Parallel()
	s := newScene(t, until("requests"), lifecycle.Policy{Settle: 5 * time.Second, SettleMax: 10 * time.Second})
	j := s.judge(s.connect(s.serve()))
	s.delete(60)
	s.withdraw()
	j.permitted(true)
	s.kill()
	s.revive()
	begin := time.Now()
	if a := j.polls(20 * time.Second); a.WhenQuiet != nil || time.Since(begin) > 10*time.Second {
		t.Errorf("answer %+v after %s, want at once and without", a, time.Since(begin))
	}
	j.leaves(0)
	if a := j.permitted(true); a.Released() {
		t.Errorf("answer %+v", a)
	}
}

// A port on which gRPC is spoken is held for its sessions, and that is said; its clients
// are not among those that a hook may judge.
func TestSpokenHoldsForSessions(t *testing.T) {
	t.Parallel()
	s := newScene(t, until("requests"), quick)
	c := s.connect(s.serve())
	slice := newSlice(s.pod, true)
	slice.Ports[0].AppProtocol = new("grpc")
	_, err := s.api.DiscoveryV1().EndpointSlices(namespace).Update(t.Context(), slice, metav1.UpdateOptions{})
	must(t, err)
	j := s.judge(c)
	s.delete(900)
	s.reaches(lifecycle.Withdrawing, 1)
	slice = newSlice(s.pod, false) // what was listed once counts
	_, err = s.api.DiscoveryV1().EndpointSlices(namespace).Update(t.Context(), slice, metav1.UpdateOptions{})
	must(t, err)
	s.eventually("it is said", func() error {
		if a := j.polls(time.Second); a.WhenQuiet != nil || a.Released() {
			t.Fatalf("answer %+v", a)
		}
		for _, e := range s.events() {
			if strings.HasPrefix(e, "HeldForSessions: ") && strings.Contains(e, "grpc is spoken on port 8080") {
				return nil
			}
		}
		return errors.New("it is not")
	})
	c.end(t)
	j.sees()
	if a := j.released(); a.Reason != lifecycle.Drained {
		t.Errorf("answer %+v", a)
	}
}

// Where nobody can tell requests a pod is held for its sessions, and that is said once.
func TestNobodyCanJudge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*judge)
		says   string
	}{
		"an old hook": {func(j *judge) { j.can, j.says = nil, nil }, "its hook is too old to tell requests"},
		"no sock_diag": {
			func(j *judge) { j.says = &lifecycle.RequestReport{Blind: "no TCP_INFO"} }, "its hook cannot tell requests: no TCP_INFO",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, until("requests"), quick)
			c := s.connect(s.serve())
			j := s.judge(c)
			tc.change(j)
			s.delete(900)
			s.withdraw()
			said := func() (n int) {
				for _, e := range s.events() {
					if strings.HasPrefix(e, "HeldForSessions: ") && strings.Contains(e, tc.says) {
						n++
					}
				}
				return n
			}
			s.eventually("it is said", func() error {
				if a := j.polls(time.Second); a.WhenQuiet != nil || a.Released() {
					t.Fatalf("answer %+v", a)
				}
				if said() == 0 {
					return errors.New("it is not")
				}
				return nil
			})
			j.leaves(0)
			if a := j.polls(time.Second); a.Released() {
				t.Errorf("answer %+v", a)
			}
			c.end(t)
			j.sees()
			if a := s.hook(); a.Reason != lifecycle.Drained {
				t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
			}
			if n := said(); n != 1 {
				t.Errorf("said %d times: %q", n, s.events())
			}
		})
	}
}

// What a policy by requests would have saved is told of a pod that was held for its
// sessions.
func TestSavingIsSaid(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	c := s.connect(s.serve())
	j := s.judge(c)
	s.delete(60)
	s.withdraw()
	s.reaches(lifecycle.Draining, 1)
	begin := time.Now()
	s.eventually("a moment without a request, a while ago", func() error {
		ago := 0.0
		j.says = &lifecycle.RequestReport{QuietAgoSeconds: &ago}
		j.polls(100 * time.Millisecond)
		if time.Since(begin) < 3*leastSaving {
			return errors.New("not yet")
		}
		return nil
	})
	c.end(t)
	j.sees()
	if a := s.hook(); a.Reason != lifecycle.Drained {
		t.Errorf("reason %s, want %s", a.Reason, lifecycle.Drained)
	}
	s.eventNaming("Drained: The last session has ended", "With conndrain.io/until: requests it would have been released ", " s earlier")
}
