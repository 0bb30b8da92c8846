package lifecycle

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var containerPorts = map[string][]uint16{"http": {8080}, "grpc": {9090, 9091}}

func TestParseAnnotations(t *testing.T) {
	length := func(s float64) *time.Duration { d := seconds(s); return &d }
	for _, tc := range []struct {
		name string
		all  map[string]string
		want Settings
	}{
		{"none", nil, Settings{}},
		{"of others", map[string]string{"app.kubernetes.io/until": "x", "conndrain.iox/settle": "x"}, Settings{}},
		{"all", map[string]string{
			"conndrain.io/until": "withdrawn", "conndrain.io/idle-after": "90s", "conndrain.io/settle": "0s",
			"conndrain.io/min-delay": "2m", "conndrain.io/reserve": " 4s ", "conndrain.io/ports": "http, 80,grpc,80",
		}, Settings{
			Until: Untils{Rest: UntilWithdrawn}, IdleAfter: 90 * time.Second,
			Settle: length(0), MinDelay: length(120), Reserve: length(4), Ports: []uint16{80, 8080, 9090, 9091},
		}},
		{"of requests", map[string]string{
			"conndrain.io/until": "requests", "conndrain.io/quiet": "90s", "conndrain.io/busy-after": "0s",
			"conndrain.io/notify": "http://:8080/-/quiesce?why=drain", "conndrain.io/notify-after": "7s",
		}, Settings{
			Until: Untils{Rest: UntilRequests}, Quiet: length(90), BusyAfter: length(0), NotifyAfter: length(7),
			Notify: &Notify{Method: "POST", Scheme: "http", Port: 8080, Path: "/-/quiesce?why=drain"},
		}},
		{"of single ports", map[string]string{"conndrain.io/until": "http=requests, 9000 = sessions,grpc=withdrawn,requests-strict"},
			Settings{Until: Untils{Rest: UntilRequestsStrict, Ports: map[uint16]Until{
				8080: UntilRequests, 9000: UntilSessions, 9090: UntilWithdrawn, 9091: UntilWithdrawn,
			}}}},
		{"notify by GET", map[string]string{"conndrain.io/notify": "GET https://:8443"},
			Settings{Notify: &Notify{Method: "GET", Scheme: "https", Port: 8443, Path: "/"}}},
		{"notify by signal", map[string]string{"conndrain.io/notify": "SIGUSR1"}, Settings{Notify: &Notify{Signal: "SIGUSR1"}}},
		{"defaults said", map[string]string{"conndrain.io/until": "sessions", "conndrain.io/idle-after": "0s"}, Settings{}},
		{"the longest", map[string]string{"conndrain.io/settle": "24h"}, Settings{Settle: length(24 * 3600)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, malformed := ParseAnnotations(tc.all, containerPorts)
			if diff := cmp.Diff(tc.want, got); diff != "" || len(malformed) > 0 {
				t.Errorf("settings (-want +got):\n%s\nmalformed: %s", diff, malformed)
			}
		})
	}
}

// What is malformed leaves its default, and a person is told which annotation, what
// is in it and what is allowed.
func TestMalformedAnnotations(t *testing.T) {
	for _, tc := range []struct{ key, value, says string }{
		{"until", "", "use sessions, requests, requests-strict or withdrawn"},
		{"until", "Sessions", "use sessions, requests, requests-strict or withdrawn"},
		{"until", "requests,", "use sessions, requests"},
		{"until", "8080=", "use sessions, requests"},
		{"until", "requests,sessions", "two words without a port"},
		{"until", "0=requests", `neither a number from 1 to 65535 nor the name of one of the pod's container ports: "0=requests"`},
		{"until", "8080=requests,http=sessions", "two things of port 8080"},
		{"until", strings.Repeat("8080=requests,", 70), "up to 64"},
		{"quiet", "long", "not a duration"},
		{"busy-after", "-1s", "negative"},
		{"notify-after", "soon", "not a duration"},
		{"notify", "", "neither a URL of http or https nor a signal"},
		{"notify", "SIGKILL", "none of the signals SIGHUP"},
		{"notify", "sigusr1", "neither a URL"},
		{"notify", "http://:8080x/", "neither a URL"},
		{"notify", "http://example.com:8080/", "names a host"},
		{"notify", "http://user@:8080/", "names a host"},
		{"notify", "http:///quiesce", "has no port"},
		{"notify", "http://:0/", "has no port"},
		{"notify", "http://:70000/", "has no port"},
		{"notify", "file://:80/", "neither a URL"},
		{"notify", "DELETE http://:80/", "a method other than GET and POST"},
		{"notify", "http://:80/#x", "fragment"},
		{"notify", "http://:80/" + strings.Repeat("a", 1100), "more than 1024"},
		{"settle", "5", "not a duration: use one like 5s"},
		{"settle", "", "not a duration"},
		{"settle", "NaN", "not a duration"},
		{"settle", "infs", "not a duration"},
		{"settle", "1e3s", "not a duration"},
		{"settle", "-1ns", "negative"},
		{"settle", "9223372036854775808ns", "not a duration"},
		{"settle", "99999999h", "not a duration"},
		{"settle", "1000000h", "too long: use one like 5s or 1m30s, up to 24h"},
		{"min-delay", "24h1ns", "too long"},
		{"reserve", "soon", "not a duration"},
		{"idle-after", "10ms", "too short: use 1s or more"},
		{"idle-after", "-5s", "negative"},
		{"ports", "", "empty entry"},
		{"ports", "80,", "empty entry"},
		{"ports", "0", "neither a number from 1 to 65535"},
		{"ports", "65536", "neither a number from 1 to 65535"},
		{"ports", "-80", "neither a number"},
		{"ports", "80,htpp", `"htpp"`},
		{"ports", "80 81", "neither a number"},
		{"ports", strings.Repeat("80,", 64) + "80", "too many ports"},
		{"setle", "5s", "conndrain.io/setle is not known here"},
		{"", "5s", "conndrain.io/ is not known here"},
	} {
		t.Run(tc.key+" "+tc.value, func(t *testing.T) {
			got, malformed := ParseAnnotations(map[string]string{AnnotationPrefix + tc.key: tc.value}, containerPorts)
			if diff := cmp.Diff(Settings{}, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if len(malformed) != 1 {
				t.Fatalf("malformed: %s, want one", malformed)
			}
			text := malformed[0].String()
			for _, part := range []string{"conndrain.io/" + tc.key, tc.says} {
				if !strings.Contains(text, part) {
					t.Errorf("%q does not say %q", text, part)
				}
			}
		})
	}
	_, all := ParseAnnotations(map[string]string{"conndrain.io/settle": "x", "conndrain.io/ports": "y", "conndrain.io/until": "z"}, nil)
	var names []string
	for _, m := range all {
		names = append(names, m.Annotation)
	}
	if diff := cmp.Diff([]string{PortsAnnotation, SettleAnnotation, UntilAnnotation}, names); diff != "" {
		t.Errorf("malformed (-want +got):\n%s", diff)
	}
}

func TestBudgetOfSettings(t *testing.T) {
	reserve := func(s float64) Settings { d := seconds(s); return Settings{Reserve: &d} }
	for _, tc := range []struct {
		name         string
		settings     Settings
		grace, limit float64
		want         float64
		ok           bool
	}{
		{"not said", Settings{}, 30, 0, 24, true},
		{"more", reserve(20), 30, 0, 10, true},
		{"less", reserve(1), 30, 0, 29, true},
		{"none", reserve(0), 30, 0, 30, true},
		{"capped", reserve(1), 30, 10, 10, true},
		{"all of it", reserve(30), 30, 0, 24, false},
		{"longer than a shorter deletion gives", reserve(20), 10, 0, 8, false},
		{"too short to wait", reserve(0), 2, 0, 0, true},
		{"no grace", reserve(0), 0, 0, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			budget, ok := tc.settings.Budget(seconds(tc.grace), seconds(tc.limit))
			if budget != seconds(tc.want) || ok != tc.ok {
				t.Errorf("budget %s %t, want %v s %t", budget, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestSettingsOverAPolicy(t *testing.T) {
	usual := Policy{Settle: DefaultSettle, SettleMax: DefaultSettleMax}
	if diff := cmp.Diff(usual, Settings{}.Over(usual)); diff != "" {
		t.Errorf("nothing asked for (-want +got):\n%s", diff)
	}
	settle, delay := 2*time.Minute, 15*time.Second
	want := Policy{Until: UntilWithdrawn, Settle: settle, SettleMax: settle, MinDelay: delay}
	if diff := cmp.Diff(want, Settings{Until: Untils{Rest: UntilWithdrawn}, Settle: &settle, MinDelay: &delay}.Over(usual)); diff != "" {
		t.Errorf("all asked for (-want +got):\n%s", diff)
	}
}

// FuzzParseAnnotations: whatever a pod says, there is no crash, nothing out of
// bounds, and text that fits an Event.
func FuzzParseAnnotations(f *testing.F) {
	f.Add("settle", "5s")
	f.Add("idle-after", "-1h")
	f.Add("ports", "http,80,grpc")
	f.Add("until", "requests")
	f.Add("reserve", "9223372036854775807ns")
	f.Add("unknown\xff", strings.Repeat("\xff", 100))
	f.Fuzz(func(t *testing.T, key, value string) {
		s, malformed := ParseAnnotations(map[string]string{AnnotationPrefix + key: value}, containerPorts)
		for _, d := range []*time.Duration{&s.IdleAfter, s.Settle, s.MinDelay, s.Reserve} {
			if d != nil && (*d < 0 || *d > longest) {
				t.Errorf("%s %q means %s", key, value, *d)
			}
		}
		if s.IdleAfter > 0 && s.IdleAfter < shortestIdle {
			t.Errorf("%q makes everything idle", value)
		}
		for i, p := range s.Ports {
			if p == 0 || (i > 0 && s.Ports[i-1] >= p) {
				t.Errorf("%q means ports %d", value, s.Ports)
			}
		}
		if len(malformed) > 1 || (len(malformed) == 1) != (cmp.Diff(Settings{}, s) == "" && malformed != nil) {
			t.Errorf("%s %q: %+v and %v", key, value, s, malformed)
		}
		for _, m := range malformed {
			if text := m.String(); len(text) > 1000 || (utf8.ValidString(key) && !utf8.ValidString(text)) {
				t.Errorf("text %q", text)
			}
		}
		for _, grace := range []time.Duration{0, 10 * time.Second, time.Hour} {
			if b, _ := s.Budget(grace, 0); b < 0 || b > grace {
				t.Errorf("%s %q: budget %s of %s", key, value, b, grace)
			}
		}
	})
}
