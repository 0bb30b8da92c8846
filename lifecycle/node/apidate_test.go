package node

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A live GET tells the API server's clock, whatever that of this machine says.
func TestLiveGETTellsTheServersClock(t *testing.T) {
	clock := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	date := clock.Format(http.TimeFormat)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", date)
		_ = json.NewEncoder(w).Encode(corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "uid-1", Labels: map[string]string{"app": "web"}},
		})
	}))
	defer api.Close()
	config := &rest.Config{Host: api.URL}
	config.Wrap(WithAPIDates)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &pods{client: client}
	for _, want := range []time.Time{clock, {}} {
		pod, got, err := p.live(t.Context(), "shop", "web-1", "uid-1")
		if err != nil || pod == nil || !got.Equal(want) {
			t.Errorf("pod %v at %s, error %v, want one at %s", pod, got, err, want)
		}
		if pod != nil && pod.Labels != nil {
			t.Error("the pod is not trimmed as those of the watch are")
		}
		date = "yesterday, around noon"
	}
	client.CoreV1().RESTClient().(*rest.RESTClient).Client.CloseIdleConnections()
}

func TestTerminatingFor(t *testing.T) {
	now := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	for _, tc := range []struct {
		name         string
		left, grace  int64 // seconds to the deletionTimestamp, and its grace
		date         time.Time
		want         time.Duration
		notDeletedAt bool
	}{
		{"a moment ago", 60, 60, now, 0, false},
		{"20 s ago", 40, 60, now, 20 * time.Second, false},
		{"past its grace", -5, 60, now, 65 * time.Second, false},
		{"by a server whose clock is behind", 70, 60, now, 0, false},
		{"a server that tells no date", 40, 60, time.Time{}, 0, false},
		{"not deleted", 0, 60, now, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := podWithGrace(900, tc.grace)
			pod.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Duration(tc.left) * time.Second)}
			if tc.notDeletedAt {
				pod.DeletionTimestamp = nil
			}
			if got := terminatingFor(pod, tc.date); got != tc.want {
				t.Errorf("for %s, want %s", got, tc.want)
			}
		})
	}
}
