package node

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/conndrain/conndrain/lifecycle"
)

// body is a request's, that stops before its end until it may go on.
type body struct {
	text  *bytes.Reader
	read  int
	stop  int // after so many bytes; 0: never
	going <-chan struct{}
}

func (b *body) Read(p []byte) (int, error) {
	if b.stop > 0 && b.read >= b.stop {
		<-b.going
		b.stop = 0
	}
	n, err := b.text.Read(p)
	b.read += n
	return n, err
}

// Of a pod's large requests one is held in memory at a time, however slow it is; small
// ones do not wait for it.
func TestSlowBodiesHoldNoMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{log: slog.New(slog.DiscardHandler)}
		pod := podWithGrace(60, 60)
		pod.UID = "uid-1"
		ask := func(b *body) <-chan error {
			done := make(chan error, 1)
			go func() {
				r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, lifecycle.DrainPath, io.NopCloser(b))
				_, err := s.read(httptest.NewRecorder(), r, pod)
				done <- err
			}()
			synctest.Wait()
			return done
		}
		going := make(chan struct{})
		text := append(bytes.Repeat([]byte{' '}, lifecycle.MaxRequestBytes-10), "{}"...)
		slow := ask(&body{text: bytes.NewReader(text), stop: 2 * smallRequest, going: going})
		next := &body{text: bytes.NewReader(text)}
		large := ask(next)
		if next.read > smallRequest {
			t.Errorf("%d bytes of a second request are held beside a slow one", next.read)
		}
		select {
		case err := <-ask(&body{text: bytes.NewReader([]byte("{}"))}):
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("a small request waits for a slow one")
		}
		close(going)
		for _, done := range []<-chan error{slow, large} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// Large answers are encoded few at a time, and written by all at once; small ones do not
// wait for them.
func TestLargeAnswersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{log: slog.New(slog.DiscardHandler)}
		going, ended := make(chan struct{}), make(chan error, codedAtOnce)
		for range codedAtOnce {
			go func() {
				ended <- s.turns.code(func() error {
					<-going
					return nil
				})
			}()
		}
		synctest.Wait()
		small, large := httptest.NewRecorder(), httptest.NewRecorder()
		s.answer(small, http.StatusOK, lifecycle.DrainAnswer{})
		if small.Body.Len() == 0 {
			t.Error("a small answer is not there")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.answer(large, http.StatusOK, lifecycle.DrainAnswer{WhenQuiet: &lifecycle.WhenQuiet{}})
		}()
		synctest.Wait()
		if large.Body.Len() > 0 {
			t.Error("a large answer is encoded beside as many as may be")
		}
		close(going)
		<-done
		if large.Body.Len() == 0 {
			t.Error("the large answer is not there")
		}
		for range codedAtOnce {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}
