package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/conndrain/conndrain/lifecycle"
)

const (
	connectTimeout = time.Second
	// answerMargin is how much longer than asked for an answer may take before the
	// helper is taken for one that hangs. The fallback begins within two seconds.
	answerMargin = 1500 * time.Millisecond
	// maxAnswer has room for lifecycle.MaxQuietPeers addresses of IPv6, each with one
	// port.
	maxAnswer = 64<<10 + lifecycle.MaxQuietPeers*peerText
)

// errNotHelper is an answer that no helper gave.
var errNotHelper = errors.New("the answer is not from a conndrain-node: something in between answers for its port")

// refusal is a helper's answer that is no state of a drain. It is never final: an
// address may not be known yet.
type refusal struct {
	status  string
	message string
}

func (r refusal) Error() string {
	return strings.TrimSpace("helper answers " + r.status + " " + r.message)
}

// client asks one helper. It is safe for concurrent use.
type client struct {
	url   string
	token string // a file, or nothing
	http  *http.Client
	log   *slog.Logger
}

// newTransport connects to a helper. No proxy of the pod's environment is used.
func newTransport() http.RoundTripper {
	return &http.Transport{
		DialContext: (&net.Dialer{Timeout: connectTimeout}).DialContext,
		// One that is held, and one for what has to be said before its end.
		MaxConnsPerHost: 2,
		IdleConnTimeout: time.Minute,
	}
}

// newClient asks the helper at a host:port, with the token in a file if there is
// one.
func newClient(address, tokenFile string, transport http.RoundTripper, log *slog.Logger) client {
	return client{
		url:   "http://" + address + lifecycle.DrainPath,
		token: tokenFile,
		log:   log,
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// ask sends one request. It blocks until the helper answers, for the request's own
// wait and a little more at the most, or until ctx ends. A helper that cannot be
// reached, hangs, refuses or is none is an error.
func (c client) ask(ctx context.Context, r lifecycle.DrainRequest) (lifecycle.DrainAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, lifecycle.Seconds(r.WaitSeconds)+answerMargin)
	defer cancel()
	var answer lifecycle.DrainAnswer
	body, err := json.Marshal(r)
	if err != nil {
		return answer, fmt.Errorf("encode request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return answer, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	c.authorize(req)
	resp, err := c.http.Do(req)
	if err != nil {
		return answer, fmt.Errorf("ask helper: %w", err)
	}
	defer resp.Body.Close()
	if resp.Header.Get(lifecycle.Header) == "" {
		return answer, fmt.Errorf("ask helper: status %s: %w", resp.Status, errNotHelper)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, int64(maxAnswer)))
	if err != nil {
		return answer, fmt.Errorf("read answer: %w", err)
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		return lifecycle.DrainAnswer{}, fmt.Errorf("read answer of status %s: %w", resp.Status, err)
	}
	if resp.StatusCode != http.StatusOK || answer.Phase == "" {
		return answer, refusal{resp.Status, answer.Message}
	}
	return answer, nil
}

// maxToken is longer than any token of a service account.
const maxToken = 16 << 10

// authorize adds the token. The kubelet replaces the file from time to time.
func (c client) authorize(req *http.Request) {
	if c.token == "" {
		return
	}
	f, err := os.Open(c.token)
	if err != nil {
		c.log.Warn("asks without a token", "err", err)
		return
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken))
	if token := strings.TrimSpace(string(b)); err == nil && token != "" && !strings.ContainsFunc(token, unicode.IsControl) {
		req.Header.Set("Authorization", "Bearer "+token)
		return
	}
	c.log.Warn("asks without a token: there is none in the file", "file", c.token, "err", err)
}

// close lets go of the connection.
func (c client) close() { c.http.CloseIdleConnections() }
