package demo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// errWrong is a download whose bytes are not the right ones.
var errWrong = errors.New("the bytes that arrived are wrong")

// client is one that downloads, and what it saw.
type client struct {
	planned
	want []byte
	// ready is closed at the first byte, or when there will be none.
	ready chan struct{}
	once  sync.Once

	mu           sync.Mutex
	begun, ended time.Time
	bytes        int64
	err          error
}

func newClient(p planned) *client {
	h := sha256.New()
	// A hash never refuses to be written to.
	_, _ = io.Copy(h, p.content())
	return &client{planned: p, want: h.Sum(nil), ready: make(chan struct{})}
}

// startDownload starts it at once, or where it is late at its time after the
// pod's deletion, and records its end.
func (s *scene) startDownload(ctx context.Context, c *client) {
	s.running.Add(1)
	s.tasks.Go(func() {
		defer s.running.Done()
		defer c.once.Do(func() { close(c.ready) })
		if c.late() && !s.afterDeletion(ctx, c.begin) {
			return
		}
		t := s.transport()
		// The connection ends with the download.
		t.DisableKeepAlives = true
		n, err := c.download(ctx, &http.Client{Transport: t}, "http://"+s.service().String()+"/"+c.name)
		now := time.Now()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended, c.bytes, c.err = now, n, err
	})
}

// afterDeletion blocks until a time after the pod's deletion; false means that
// ctx ended first.
func (s *scene) afterDeletion(ctx context.Context, d time.Duration) bool {
	select {
	case <-s.deletion:
	case <-ctx.Done():
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// download reads and checks every byte.
func (c *client) download(ctx context.Context, via *http.Client, url string) (int64, error) {
	c.mu.Lock()
	c.begun = time.Now()
	c.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := via.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	first := make([]byte, 1)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		return 0, err
	}
	c.once.Do(func() { close(c.ready) })
	h := sha256.New()
	n, err := io.Copy(h, io.MultiReader(bytes.NewReader(first), resp.Body))
	if err != nil {
		return n, fmt.Errorf("download %s after %d of %d bytes: %w", c.name, n, c.size, err)
	}
	if n != c.size || !bytes.Equal(h.Sum(nil), c.want) {
		return n, errWrong
	}
	return n, nil
}

// times are when it began and ended; zero if it did not yet.
func (c *client) times() (begun, ended time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun, c.ended, c.err
}

// record is what became of it, in times since zero.
func (c *client) record(zero time.Time) download {
	c.mu.Lock()
	defer c.mu.Unlock()
	return download{
		Name: c.name, Begun: seconds(c.begun.Sub(zero)), Ended: seconds(c.ended.Sub(zero)),
		Bytes: c.bytes, Complete: c.err == nil && c.bytes == c.size,
	}
}
