package hook

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/lifecycle"
)

// The token is read again for each request, because the kubelet replaces it; what
// is no token is not sent.
func TestToken(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization"))
		w.Header().Set(lifecycle.Header, lifecycle.HeaderV1)
		_, _ = w.Write([]byte(`{"phase":"draining"}`))
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "token")
	transport := newTransport()
	c := newClient(strings.TrimPrefix(server.URL, "http://"), file, transport, slog.New(slog.DiscardHandler))
	defer c.close()
	ask := func() {
		t.Helper()
		if _, err := c.ask(context.Background(), lifecycle.DrainRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	ask()
	for _, token := range []string{"one\n", "two", "", "bad\ntoken"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		ask()
	}
	if diff := cmp.Diff([]string{"", "Bearer one", "Bearer two", "", ""}, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

// A redirect of something in between is not followed.
func TestRedirectIsNotFollowed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != lifecycle.DrainPath {
			t.Errorf("asked for %s", r.URL.Path)
		}
		http.Redirect(w, r, "/login", http.StatusFound)
	}))
	defer server.Close()
	c := newClient(strings.TrimPrefix(server.URL, "http://"), "", newTransport(), slog.New(slog.DiscardHandler))
	defer c.close()
	if _, err := c.ask(context.Background(), lifecycle.DrainRequest{}); err == nil || !strings.Contains(err.Error(), "in between") {
		t.Errorf("error %v", err)
	}
}
