package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/conndrain/conndrain/lifecycle"
)

func TestAsk(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	var got lifecycle.ReleaseRequest
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+lifecycle.StatusPath, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"node":"n1","drains":[]}`))
	})
	mux.HandleFunc("POST "+lifecycle.ReleasePath, func(w http.ResponseWriter, r *http.Request) {
		got = lifecycle.ReleaseRequest{}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		if got.By == "nobody" {
			http.Error(w, "no such person", http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte(`{"released":[]}`))
	})
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(mux)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	defer server.Close()

	for _, tc := range []struct {
		args, out, err string
		want           lifecycle.ReleaseRequest
	}{
		{args: "status", out: `{"node":"n1","drains":[]}`},
		{args: "status --output table", err: "it is json"},
		{args: "release --all --namespace shop --by alice", out: `{"released":[]}`, want: lifecycle.ReleaseRequest{All: true, Namespace: "shop", By: "alice"}},
		{args: "release --pod shop/web-1 --uid u --reason late", out: `{"released":[]}`, want: lifecycle.ReleaseRequest{
			Pods: []lifecycle.PodRef{{Namespace: "shop", Name: "web-1", UID: "u"}}, Why: "late",
		}},
		{args: "release --all --by nobody", err: "400 Bad Request: no such person"},
		{args: "release", err: "say what to release"},
		{args: "release --all --pod shop/web-1", err: "say what to release"},
		{args: "release --pod web-1", err: "write NAMESPACE/NAME"},
		{args: "release --pod shop/a --pod shop/b --uid u", err: "--uid goes with one --pod"},
		{args: "status --socket " + socket + "no", err: "ask the helper"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			got = lifecycle.ReleaseRequest{}
			cmd := newCommand()
			var out bytes.Buffer
			cmd.SetOut(&out)
			args := strings.Fields(tc.args)
			if !strings.Contains(tc.args, "--socket") {
				args = append(args, "--socket", socket)
			}
			cmd.SetArgs(args)
			err := cmd.ExecuteContext(t.Context())
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want one that says %q", err, tc.err)
			}
			if out.String() != tc.out {
				t.Errorf("output %q, want %q", &out, tc.out)
			}
			if tc.err == "" {
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("request (-want +got):\n%s", diff)
				}
			}
		})
	}
}
