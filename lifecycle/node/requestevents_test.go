package node

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// What was cut for certain is told apart from what nobody could tell, and what was not
// waited for is named.
func TestQuietEvent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		open int
		last lifecycle.Leaving
		left int
		want string
	}{
		{0, lifecycle.Leaving{}, 0, "Normal Drained No request was in flight; released 5.0 s after the first hook began"},
		{2, lifecycle.Leaving{}, 1, "Normal Drained No request was in flight on the 2 sessions left; 1 session left to the application; released 5.0 s"},
		{1, lifecycle.Leaving{Cut: 1}, 0, "Warning Drained 1 request cut on the 1 session left, because no moment came without one (conndrain.io/busy-after); released"},
		{1, lifecycle.Leaving{Cut: 2}, 0, "Warning Drained 2 requests cut, because no moment came without one (conndrain.io/busy-after); released"},
		{3, lifecycle.Leaving{Cut: 3, Untold: 3}, 0, "Warning Drained No request is known to have been cut on the 3 sessions left, of 3 of which nobody could tell, because no moment"},
		{4, lifecycle.Leaving{Cut: 3, Untold: 1}, 0, "Warning Drained 2 requests cut on the 4 sessions left, of 1 of which nobody could tell whether there was one, too, because"},
	} {
		r := record.NewFakeRecorder(1)
		events{r}.quiet(&corev1.Pod{}, conntrack.Counts{Open: tc.open}, tc.last, tc.left, 5*time.Second)
		if got := <-r.Events; !strings.HasPrefix(got, tc.want) {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// What a hook that went before the others has cut is told at the end of the drain, however
// that comes.
func TestPartedEvent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		parted  lifecycle.Leaving
		drained string
		expired string
	}{
		{lifecycle.Leaving{}, "Normal Drained The last session has ended; released", ""},
		{lifecycle.Leaving{Cut: 1}, "Warning Drained The last session has ended; 1 request was in flight when one of its hooks returned before the rest (conndrain.io/busy-after); released",
			"; 1 request was in flight when one of its hooks returned before the rest (conndrain.io/busy-after)"},
		{lifecycle.Leaving{Cut: 2, Untold: 2}, "Warning Drained The last session has ended; 2 requests were perhaps in flight when one",
			"; 2 requests were perhaps in flight when one of its hooks returned before the rest (conndrain.io/busy-after)"},
		{lifecycle.Leaving{Cut: 3, Untold: 1}, "Warning Drained The last session has ended; 3 requests were in flight, 1 of them perhaps, when one",
			"; 3 requests were in flight, 1 of them perhaps, when one of its hooks returned before the rest (conndrain.io/busy-after)"},
	} {
		r := record.NewFakeRecorder(2)
		c := conntrack.Counts{Known: true, Peak: 2}
		events{r}.drained(&corev1.Pod{}, c, tc.parted, 0, 5*time.Second, 0)
		if got := <-r.Events; !strings.HasPrefix(got, tc.drained) {
			t.Errorf("%q, want %q", got, tc.drained)
		}
		events{r}.expired(&corev1.Pod{}, c, flight{}, tc.parted, nil, 5*time.Second, time.Time{}, nil, 0)
		if got := <-r.Events; !strings.HasSuffix(got, "while a connection was being made"+tc.expired) {
			t.Errorf("%q, want %q", got, tc.expired)
		}
	}
}

// What a hook says of it reaches people: an application that has not answered may have been
// told.
func TestNotifiedEvent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		said lifecycle.Notified
		want string
	}{
		{lifecycle.Notified{}, "Normal Notified The application was told that it will end, by POST http://:8080/"},
		{lifecycle.Notified{Failure: "status\n500"}, "Warning NotifyFailed The application was not told that it will end, by POST http://:8080/: status 500"},
		{lifecycle.Notified{Failure: "EOF", Unanswered: true}, "Warning NotifyFailed Whether the application was told that it will end, by POST http://:8080/, is unknown: EOF"},
	} {
		r := record.NewFakeRecorder(1)
		v := newVigil()
		v.settings.Notify = &lifecycle.Notify{Method: "POST", Scheme: "http", Port: 8080, Path: "/"}
		s := server{notified: events{r}.notified}
		s.tell(v.drain, lifecycle.DrainRequest{Notified: &tc.said})
		if got := <-r.Events; got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
