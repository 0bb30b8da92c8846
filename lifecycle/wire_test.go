package lifecycle

import (
	"encoding/json"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// P28: requests and answers of a release are read for ever, with what a later one
// adds and without what it left out.
func TestP28RecordedRequests(t *testing.T) {
	socket := func(local, peer string) Socket {
		return Socket{netip.MustParseAddrPort(local), netip.MustParseAddrPort(peer)}
	}
	for name, want := range map[string]DrainRequest{
		"request-1.json": {ElapsedSeconds: 1.5, WaitSeconds: 10, Version: "v0.1.0"},
		"request-2.json": {
			ElapsedSeconds: 7.25, WaitSeconds: 5, Version: "v0.2.0", FallbackSleepSeconds: 15, Serves: []uint16{10942},
			Sockets: &SocketList{
				AgeSeconds: 0.0004, Mark: "k3f9-7250000000", Listening: []uint16{8080},
				Inbound: []Socket{
					socket("10.244.1.7:8080", "10.244.2.9:40000"),
					socket("10.244.1.7:8080", "10.244.2.9:40002"),
					socket("[fd00:244:1::7]:8080", "[fd00:10::20]:51000"),
				},
				Other: []Socket{socket("10.244.1.7:41234", "10.0.0.5:5432")},
			},
		},
		"request-3.json": {
			ElapsedSeconds: 12.5, WaitSeconds: 5, Version: "v0.3.0", Can: []string{CanJudge, CanRequest, CanSignal},
			Requests: &RequestReport{
				Classes:         map[string]PeerSet{"between": peerSet("10.244.2.9:40000", "10.244.2.9:40002"), "owes": peerSet("[fd00:10::20]:51000")},
				Counts:          map[string]int{"between": 2, "owes": 1},
				QuietAgoSeconds: new(1.25),
			},
			Notified: &Notified{Failure: "context deadline exceeded", Unanswered: true},
		},
		"request-3-leaving.json": {ElapsedSeconds: 14, Version: "v0.3.0", Leaving: &Leaving{Cut: 2}},
		"request-2-truncated.json": {ElapsedSeconds: 7.25, Sockets: &SocketList{
			Truncated: true, Inbound: []Socket{socket("10.244.1.7:8080", "10.244.2.9:40000")},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			var got DrainRequest
			read(t, string(b), &got)
			if diff := cmp.Diff(want, got, inAnyOrder, comparePorts); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			again, err := json.MarshalIndent(got, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(b), string(again)+"\n"); diff != "" {
				t.Errorf("written again (-want +got):\n%s", diff)
			}
		})
	}
}

func peerSet(peers ...string) PeerSet {
	s := make(PeerSet)
	for _, p := range peers {
		s.Add(netip.MustParseAddrPort(p))
	}
	return s
}

func TestP28RecordedPermission(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("testdata", "answer-3.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got DrainAnswer
	read(t, string(b), &got)
	zero, two := 0, 2
	want := DrainAnswer{
		Phase: "draining", RemainingSeconds: new(31.5), Source: "conntrack", Open: &two, Idle: &zero, Lost: &zero, Mark: "k3f9-8250000000", LookShare: 0.05,
		WhenQuiet: &WhenQuiet{
			Requests: peerSet("10.244.2.9:40000"), Strict: peerSet("[fd00:10::20]:51000"),
			Ignored: peerSet("10.244.3.3:9"), IgnoredPorts: []uint16{9090}, QuietSeconds: 10, BusyAfterSeconds: 10,
		},
		Notify: &Notify{Method: "POST", Scheme: "http", Port: 8080, Path: "/-/quiesce"},
	}
	if diff := cmp.Diff(want, got, comparePorts); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	again, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(b), string(again)+"\n"); diff != "" {
		t.Errorf("written again (-want +got):\n%s", diff)
	}
}

// A client that cannot be read is in no set, and the rest of what was sent counts.
func TestPeerSetThatCannotBeRead(t *testing.T) {
	for _, text := range []string{`7`, `[]`, `null`, `{"host":[1]}`, `{"10.0.0.1":"80"}`, `{"10.0.0.1":[70000]}`, `{"10.0.0.1":[-1]}`} {
		var a DrainAnswer
		read(t, `{"phase":"draining","whenQuiet":{"requests":`+text+`,"ignored":{"10.0.0.2":[7]},"quietSeconds":3}}`, &a)
		if q := a.WhenQuiet; a.Phase != "draining" || q == nil || len(q.Requests) > 0 || !q.Ignored.Has(netip.MustParseAddrPort("[::ffff:10.0.0.2]:7")) || q.QuietSeconds != 3 {
			t.Errorf("%s was read as %+v", text, a)
		}
	}
}

func TestP28RecordedAnswer(t *testing.T) {
	var answer DrainAnswer
	read(t, `{"phase":"released","reason":"Expired","remainingSeconds":0,"source":"conntrack","open":2,"idle":0,"lost":1,"cut":3}`, &answer)
	zero, one, two, three, none := 0, 1, 2, 3, 0.
	want := DrainAnswer{
		Phase: "released", Reason: Expired, RemainingSeconds: &none, Source: "conntrack",
		Open: &two, Idle: &zero, Lost: &one, Cut: &three,
	}
	if diff := cmp.Diff(want, answer); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if left, ok := answer.Remaining(); left != 0 || !ok || !answer.Released() {
		t.Errorf("remaining %s %t, released %t", left, ok, answer.Released())
	}
}

func TestWireIgnoresWhatItDoesNotKnow(t *testing.T) {
	var request DrainRequest
	read(t, `{"later":{"a":[1]},"elapsedSeconds":2}`, &request)
	if diff := cmp.Diff(DrainRequest{ElapsedSeconds: 2}, request); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	var answer DrainAnswer
	read(t, `{"phase":"pondering","later":[{}]}`, &answer)
	if answer.Released() {
		t.Error("a phase that is not known yet released the hook")
	}
	if _, ok := answer.Remaining(); ok {
		t.Error("time remains that nobody told of")
	}
}

func TestSecondsOfTheWire(t *testing.T) {
	for given, want := range map[float64]time.Duration{
		0: 0, -1: 0, 1.5: 1500 * time.Millisecond, 1e300: 24 * time.Hour, math.Inf(1): 24 * time.Hour, math.Inf(-1): 0,
	} {
		if got := Seconds(given); got != want {
			t.Errorf("Seconds(%v) = %s, want %s", given, got, want)
		}
	}
	if got := Seconds(math.NaN()); got != 0 {
		t.Errorf("Seconds of no number = %s", got)
	}
}

func read(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
