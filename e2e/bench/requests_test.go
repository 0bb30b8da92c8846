package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCountRequests(t *testing.T) {
	log := strings.Join([]string{
		`{"stage":"ResponseComplete","verb":"get","objectRef":{"resource":"pods","namespace":"a","name":"p"}}`,
		`{"stage":"ResponseStarted","verb":"watch","objectRef":{"resource":"endpointslices","namespace":"a"}}`,
		// its end, and that of one which began before
		`{"stage":"ResponseComplete","verb":"watch","objectRef":{"resource":"endpointslices","namespace":"a"}}`,
		`{"stage":"ResponseComplete","verb":"watch","objectRef":{"resource":"pods"}}`,
		`{"stage":"ResponseComplete","verb":"list","objectRef":{"resource":"endpointslices"}}`,
		`{"stage":"ResponseComplete","verb":"create","objectRef":{"resource":"events","namespace":"a"}}`,
		`{"stage":"ResponseComplete","verb":"create","objectRef":{"resource":"events","namespace":"a"}}`,
		`{"stage":"ResponseComplete","verb":"create","objectRef":{"resource":"pods","subresource":"eviction"}}`,
	}, "\n") + "\n"
	got, err := countRequests(log)
	if err != nil {
		t.Fatal(err)
	}
	want := requests{
		"get pods": 1, "watch endpointslices": 1, "list " + everySlice: 1, "create events": 2, "create pods/eviction": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.sum() != 6 || !strings.HasPrefix(got.String(), "create events 2, create pods/eviction 1, ") {
		t.Errorf("%d requests: %s", got.sum(), got)
	}
	if _, err := countRequests("half a li"); err == nil {
		t.Error("a line that is none was counted")
	}
}
