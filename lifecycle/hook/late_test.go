package hook

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// A look that comes late, where there is little CPU time, ends the wait only if the next
// one agrees.
func TestLateLookNeedsAnother(t *testing.T) {
	const late, soon = requests.Recent + ms, requests.Recent
	busy := []looks.Connection{{Socket: socket("10.244.1.7:8080", two)}}
	for _, tc := range []struct {
		name  string
		looks []looks.Sight
		took  []time.Duration
		ends  int // with which look, from 1 on; 0 is not at all
	}{
		{"soon enough", make([]looks.Sight, 2), []time.Duration{soon, soon}, 1},
		{"late", make([]looks.Sight, 1), []time.Duration{late}, 0},
		{"late, and the next one soon", make([]looks.Sight, 2), []time.Duration{late, soon}, 2},
		{"late twice", make([]looks.Sight, 2), []time.Duration{late, late}, 2},
		{"late, and then a request", []looks.Sight{{}, {Counted: busy}, {}}, []time.Duration{late, soon, late}, 0},
		{"late, and then no look", []looks.Sight{{}, {Err: context.DeadlineExceeded}, {}}, []time.Duration{late, soon, late}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := quiet{end: func() {}}
				q.permit(&lifecycle.WhenQuiet{})
				ends := 0
				for i, s := range tc.looks {
					s.At = time.Now()
					<-time.After(tc.took[i])
					if q.look(s); ends == 0 && q.over() != nil {
						ends = i + 1
					}
				}
				if ends != tc.ends {
					t.Errorf("ended with look %d, want %d", ends, tc.ends)
				}
			})
		})
	}
}

// A look that was late counts no more once the permission was taken back.
func TestLateLookIsForgotten(t *testing.T) {
	for name, takeBack := range map[string]func(*quiet){
		"not permitted": func(q *quiet) { q.permit(nil) },
		"suspended":     (*quiet).suspend,
	} {
		synctest.Test(t, func(t *testing.T) {
			q := quiet{end: func() {}}
			q.permit(&lifecycle.WhenQuiet{})
			for i := range 3 {
				var s looks.Sight
				s.At = time.Now()
				<-time.After(requests.Recent + ms)
				q.look(s)
				if ended := q.over() != nil; ended != (i == 2) {
					t.Errorf("%s: ended with look %d: %t", name, i+1, ended)
				}
				if i == 0 {
					takeBack(&q)
					q.permit(&lifecycle.WhenQuiet{})
				}
			}
		})
	}
}
