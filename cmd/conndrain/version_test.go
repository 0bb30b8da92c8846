package main

import "testing"

// TestVersionThatGitDoesNotKnow falls back to what the go command knows.
func TestVersionThatGitDoesNotKnow(t *testing.T) {
	before := version
	defer func() { version = before }()
	version = ""
	want := buildVersion()
	for _, tc := range []struct{ linked, want string }{{"v0.1.0", "v0.1.0"}, {noVersion, want}} {
		version = tc.linked
		if got := buildVersion(); got != tc.want || got == noVersion {
			t.Errorf("linked as %q: %q, want %q", tc.linked, got, tc.want)
		}
	}
}
