//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// startGo starts a server of net/http, or of gRPC, on each spot.
func startGo(ctx context.Context, h host) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	stops := []func() error{func() error { cancel(); return nil }}
	stop = func() (err error) {
		for _, s := range stops {
			err = errors.Join(err, s())
		}
		return err
	}
	for _, s := range h.spots {
		l, err := h.namespace.Listen(ctx, "tcp", fmt.Sprintf("0.0.0.0:%d", s.Port))
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		var secure *tls.Config
		if h.secure {
			certificate, err := tls.LoadX509KeyPair(h.certificate, h.key)
			if err != nil {
				return nil, errors.Join(err, l.Close(), stop())
			}
			secure = &tls.Config{Certificates: []tls.Certificate{certificate}}
		}
		if s.GRPC {
			stops = append(stops, serveGRPC(ctx, l, secure, h.note))
			continue
		}
		stops = append(stops, serveHTTP(ctx, l, secure, s.H2, h.note))
	}
	return stop, nil
}

func serveHTTP(ctx context.Context, l net.Listener, secure *tls.Config, h2 bool, note noter) (stop func() error) {
	var running sync.WaitGroup
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			answerer{ctx, note}.ServeHTTP(w, r)
		}), ReadHeaderTimeout: time.Minute,
		ErrorLog:  log.New(io.Discard, "", 0), // what matters shows at the client
		Protocols: new(http.Protocols), TLSConfig: secure,
	}
	s.Protocols.SetHTTP1(!h2)
	s.Protocols.SetHTTP2(h2)
	s.Protocols.SetUnencryptedHTTP2(h2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if secure != nil {
			_ = s.ServeTLS(l, "", "") // ends with stop
			return
		}
		_ = s.Serve(l)
	}()
	return func() error {
		err := s.Close()
		<-done
		running.Wait() // none notes anything later
		return err
	}
}

// answerer answers until its context ends.
type answerer struct {
	ctx  context.Context
	note noter
}

// ask is what a request asks for. Times are milliseconds.
type ask struct {
	// work comes before the answer, hint between a 103 and that.
	work, hint int
	// size are the bytes of each of the parts, between which is a pause; early is one
	// between the headers and the first part.
	size, parts, pause, early int
	// now is an answer that does not wait for the request's body.
	now bool
	// chunked is an answer that does not say how long it is.
	chunked bool
}

// query writes it for a server, with the number of the request, which always has
// the same length.
func (a ask) query(id uint64) string {
	words := []string{fmt.Sprintf("id=%012d", id)}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"size", a.size}, {"parts", a.parts}, {"work", a.work}, {"hint", a.hint}, {"pause", a.pause}, {"early", a.early},
		{"now", one(a.now)}, {"chunked", one(a.chunked)},
	} {
		if n.value > 0 {
			words = append(words, fmt.Sprintf("%s=%d", n.name, n.value))
		}
	}
	return strings.Join(words, "&")
}

// asked reads what query wrote.
func asked(q url.Values) (id uint64, a ask) {
	number := func(name string) int {
		n, _ := strconv.Atoi(q.Get(name)) // absent is 0
		return n
	}
	id, _ = strconv.ParseUint(q.Get("id"), 10, 64)
	return id, ask{
		size: number("size"), parts: max(1, number("parts")), work: number("work"), hint: number("hint"),
		pause: number("pause"), early: number("early"), now: number("now") > 0, chunked: number("chunked") > 0,
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (a answerer) wait(ms int) { rest(a.ctx, time.Duration(ms)*time.Millisecond) }

func (a answerer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, does := asked(r.URL.Query())
	note := func(what moment) { a.note(id, what, time.Now()) }
	note(began)
	if r.Header.Get("Upgrade") != "" {
		a.echo(w, does)
		return
	}
	if !does.now {
		_, _ = io.Copy(io.Discard, r.Body) // the client's trouble shows at the client
	}
	if does.hint > 0 {
		w.Header().Add("Link", "</style.css>; rel=preload; as=style")
		w.Header().Add("Link", "</script.js>; rel=preload; as=script")
		w.WriteHeader(http.StatusEarlyHints)
		a.wait(does.hint)
	}
	flush := http.NewResponseController(w)
	if does.now {
		_ = flush.EnableFullDuplex() // or it would read the body first
	}
	a.wait(does.work)
	if !does.chunked {
		w.Header().Set("Content-Length", strconv.Itoa(does.size*does.parts))
	}
	if does.parts > 1 || does.early > 0 {
		w.Header().Set("X-Accel-Buffering", "no")
	}
	if does.early > 0 {
		w.WriteHeader(http.StatusOK)
		_ = flush.Flush()
		a.wait(does.early)
		note(more)
	}
	part := make([]byte, does.size)
	for i := range does.parts {
		if i > 0 {
			a.wait(does.pause)
			note(more)
		}
		if i == does.parts-1 {
			note(last)
		}
		if _, err := w.Write(part); err != nil {
			return
		}
		if i < does.parts-1 {
			_ = flush.Flush()
		}
	}
	if does.now {
		_ = flush.Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

// echo is a WebSocket whose messages nobody here reads.
func (a answerer) echo(w http.ResponseWriter, does ask) {
	conn, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(a.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
	message := make([]byte, 1<<16)
	for err == nil {
		var n int
		if n, err = in.Read(message); err != nil {
			return
		}
		a.wait(does.work)
		_, err = conn.Write(message[:n])
	}
}
