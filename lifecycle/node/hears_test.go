package node

import (
	"context"
	"testing"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

// The hook of a deletion that joins the drain of a restart, after the API was asked for
// that, does not hear its end: its next request begins another drain.
func TestHookOfADeletionJoinsARestart(t *testing.T) {
	life, stop := context.WithCancel(t.Context())
	asked := make(chan struct{})
	h, all := newServerFor(life, t, func(_ context.Context, d *drain) {
		d.asks(time.Now().Add(-time.Minute))
		<-d.wake // the first hook has said how long it sleeps
		close(asked)
		<-d.wake // the second hook has joined
		d.become(state{phase: lifecycle.Released, reason: lifecycle.NotTerminating})
	})
	hear := func(elapsed string) <-chan lifecycle.DrainAnswer {
		heard := make(chan lifecycle.DrainAnswer, 1)
		go func() {
			a, _ := ask(t, h, `{"waitSeconds":20,"elapsedSeconds":`+elapsed+`}`)
			heard <- a
		}()
		return heard
	}
	restart := hear("120")
	<-asked
	deletion := hear("1")
	if a := <-restart; a.Reason != lifecycle.NotTerminating {
		t.Errorf("the restart's hook got %+v", a)
	}
	if a := <-deletion; a.Released() {
		t.Errorf("the deletion's hook got %+v", a)
	}
	stop()
	all.close()
}
