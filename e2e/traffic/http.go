package traffic

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

type httpVersion int

const (
	http1 httpVersion = iota + 1
	http2
)

type httpSession struct {
	address   string
	transport *http.Transport
	path      string
}

// Where transfers are asked for: one that is sent over its time, and one that is sent when its time is over.
const (
	downloadPath = "/download"
	pollPath     = "/poll"
)

// newPollSession asks for transfers that a server holds back for their time, on one connection.
func newPollSession(address string) session {
	s := newHTTPSession(address, http1, true).(httpSession)
	s.path = pollPath
	return s
}

// newHTTPSession has one connection at a time, kept for the next transfer or not.
func newHTTPSession(address string, version httpVersion, keep bool) session {
	t := &http.Transport{
		Protocols:         new(http.Protocols),
		DisableKeepAlives: !keep,
		MaxConnsPerHost:   1,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, dialError{err}
			}
			return conn, nil
		},
	}
	t.Protocols.SetHTTP1(version == http1)
	t.Protocols.SetUnencryptedHTTP2(version == http2)
	return httpSession{address, t, downloadPath}
}

func (s httpSession) close() { s.transport.CloseIdleConnections() }

func (s httpSession) transfer(ctx context.Context, t Transfer, alive func()) (int64, error) {
	u := url.URL{Scheme: "http", Host: s.address, Path: s.path, RawQuery: t.query()}
	// a POST, because a GET is silently tried again on another connection when a kept one has ended
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), nil)
	if err != nil {
		return 0, fmt.Errorf("make request: %w", err)
	}
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return 0, fmt.Errorf("request %s: %w", u.Path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("request %s: status %s", u.Path, resp.Status)
	}
	return receive(reader{resp.Body, alive}, t)
}

// serveDownload sends the transfer that the query asks for.
func serveDownload(w http.ResponseWriter, r *http.Request) {
	t, err := parseTransfer(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Length", strconv.FormatInt(t.Bytes, 10))
	if err := send(r.Context(), w, t, http.NewResponseController(w).Flush); err != nil {
		panic(http.ErrAbortHandler) // the connection ends, as it would in a server that crashed here
	}
}

// servePoll sends the transfer that the query asks for when its time is over.
func servePoll(w http.ResponseWriter, r *http.Request) {
	t, err := parseTransfer(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	over := time.NewTimer(t.Duration)
	defer over.Stop()
	select {
	case <-over.C:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(t.Bytes, 10))
	if _, err := io.Copy(w, payload(t.Bytes)); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// lasts says whether the transfer that is asked for takes a time.
func lasts(r *http.Request) bool {
	t, err := parseTransfer(r.URL.Query())
	return err == nil && t.Duration > 0
}

// query is the transfer as a client asks for it in a URL or a line.
func (t Transfer) query() string {
	q := url.Values{
		"bytes":    {strconv.FormatInt(t.Bytes, 10)},
		"duration": {t.Duration.String()},
	}
	if t.Gap > 0 {
		q.Set("gap", t.Gap.String())
	}
	return q.Encode()
}

func parseTransfer(q url.Values) (Transfer, error) {
	bytes, err := strconv.ParseInt(q.Get("bytes"), 10, 64)
	if err != nil || bytes < 0 {
		return Transfer{}, fmt.Errorf("parse bytes %q: use a number", q.Get("bytes"))
	}
	duration, err := time.ParseDuration(q.Get("duration"))
	if err != nil || duration < 0 {
		return Transfer{}, fmt.Errorf("parse duration %q: use 10s", q.Get("duration"))
	}
	t := Transfer{Bytes: bytes, Duration: duration}
	if gap := q.Get("gap"); gap != "" {
		if t.Gap, err = time.ParseDuration(gap); err != nil || t.Gap < 0 {
			return Transfer{}, fmt.Errorf("parse gap %q: use 3s", gap)
		}
	}
	return t, nil
}
