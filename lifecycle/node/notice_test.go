package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// orders plays requests of hooks to a notice: each names the mark that the hook comes
// with, and gets the mark of its number. It returns which of them are told.
func orders(n *notice, can string, marks ...string) string {
	var told string
	for i, mark := range marks {
		c := caller{can: []string{can}, looks: mark != "-", mark: mark, had: time.Now()}
		if !c.looks || mark == "" {
			c.mark, c.had = "", time.Time{}
		}
		order := n.owed(&c)
		n.answered(&c, fmt.Sprint(i), order, time.Now())
		if order {
			told += fmt.Sprint(i)
		}
	}
	return told
}

func TestNotice(t *testing.T) {
	request := lifecycle.Notify{Method: "POST", Scheme: "http", Port: 8080, Path: "/"}
	signal := lifecycle.Notify{Signal: "SIGUSR1"}
	for _, tc := range []struct {
		name  string
		what  lifecycle.Notify
		can   string
		marks []string
		want  string
	}{
		{"a request, by one hook", request, lifecycle.CanRequest, []string{"", "", "0", "1", "2"}, "0"},
		{"a request whose order was lost", request, lifecycle.CanRequest, []string{"a", "b", "a"}, "02"},
		{"a request, and nobody can", request, lifecycle.CanSignal, []string{"", "0"}, ""},
		{"a signal, by each hook", signal, lifecycle.CanSignal, []string{"", "", "0", "1", "2", "3"}, "01"},
		{"a signal whose order was lost", signal, lifecycle.CanSignal, []string{"a", "a"}, "01"},
		{"an answer after the signal that was lost", signal, lifecycle.CanSignal, []string{"a", "0", "0", "2"}, "0"},
		{"a signal, and only the sidecar", signal, lifecycle.CanRequest, []string{"", "0"}, ""},
		{"a signal, by hooks without marks", signal, lifecycle.CanSignal, []string{"-", "-"}, "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &notice{what: &tc.what, told: make(map[string]*toldHook)}
			if got := orders(n, tc.can, tc.marks...); got != tc.want {
				t.Errorf("told %q, want %q", got, tc.want)
			}
			if len(n.told) > 2*len(tc.want) {
				t.Errorf("%d marks are kept of %d hooks", len(n.told), len(tc.want))
			}
		})
	}
	if got := orders(&notice{}, lifecycle.CanRequest, "", "0"); got != "" {
		t.Errorf("told %q before it is due", got)
	}
}

// A request that went well is not sent again, whoever comes with whatever.
func TestNoticeWithResult(t *testing.T) {
	n := &notice{what: &lifecycle.Notify{Method: "POST"}, results: 1} // of an order of the helper before
	if got := orders(n, lifecycle.CanRequest, "a"); got != "" {
		t.Errorf("told %q", got)
	}
	n = &notice{what: &lifecycle.Notify{Method: "POST"}}
	orders(n, lifecycle.CanRequest, "a")
	n.results++
	if got := orders(n, lifecycle.CanRequest, "a", ""); got != "" {
		t.Errorf("told %q", got)
	}
}
