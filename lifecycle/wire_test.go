package lifecycle

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Requests and answers of a release are read for ever, with what a later one adds
// and without what it left out.
func TestWireOfTheFirstRelease(t *testing.T) {
	var request DrainRequest
	read(t, `{"elapsedSeconds":1.5,"waitSeconds":10,"version":"v0.1.0"}`, &request)
	if diff := cmp.Diff(DrainRequest{ElapsedSeconds: 1.5, WaitSeconds: 10, Version: "v0.1.0"}, request); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
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
	if request != (DrainRequest{ElapsedSeconds: 2}) {
		t.Errorf("request %+v", request)
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
