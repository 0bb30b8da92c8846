package demo

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// pages is the site that the pod serves: a greeting and the downloads.
func (s *scene) pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello\n")
	})
	for _, c := range s.downloads {
		mux.Handle("GET /"+c.name, c.planned)
	}
	return mux
}

// metricsPage is what a scraper reads.
func metricsPage() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "demo_up 1")
	})
}

// ServeHTTP serves the download slowly and evenly, so that it takes its length.
func (p planned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const every = 50 * time.Millisecond
	w.Header().Set("Content-Length", strconv.FormatInt(p.size, 10))
	w.Header().Set("Content-Type", "application/octet-stream")
	flush := http.NewResponseController(w).Flush
	content := p.content()
	parts := max(1, int64(p.length/every))
	start := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range parts {
		timer.Reset(time.Until(start.Add(time.Duration(i+1) * p.length / time.Duration(parts))))
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
		if _, err := io.CopyN(w, content, p.size*(i+1)/parts-p.size*i/parts); err != nil {
			return
		}
		if err := flush(); err != nil {
			return
		}
	}
}
