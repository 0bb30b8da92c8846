package hook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

const (
	// notifyTimeout is how long the application may take to answer.
	notifyTimeout = 5 * time.Second
	// notifyMaxAnswer is how much of its answer is read.
	notifyMaxAnswer = 4 << 10
)

// notifier tells the application that the drain has begun. It is for one use.
type notifier struct {
	version string
	// own are the addresses of the pod, for an application that does not listen on
	// loopback.
	own []netip.Addr
	// signal sends one to the first process of the container; nil where this process
	// is in another container.
	signal func(syscall.Signal) error
}

// notify carries out what a helper orders. It blocks until that is done, for
// notifyTimeout or until the wait ends.
func (n notifier) notify(wait context.Context, order lifecycle.Notify) lifecycle.Notified {
	ctx, cancel := context.WithTimeout(wait, notifyTimeout)
	defer cancel()
	var err error
	if order.Signal != "" {
		err = n.send(order.Signal)
	} else {
		err = n.request(ctx, order)
	}
	if err != nil {
		_, asked := errors.AsType[unanswered](err)
		if of, ok := errors.AsType[*url.Error](err); ok && ctx.Err() != nil && wait.Err() == nil {
			of.Err = fmt.Errorf("no answer within %g s", notifyTimeout.Seconds()) // whose deadline it was nobody asks
		}
		return lifecycle.Notified{Failure: err.Error(), Unanswered: asked}
	}
	return lifecycle.Notified{}
}

// unanswered is why there is no answer to a request that was sent.
type unanswered struct{ error }

func (u unanswered) Unwrap() error { return u.error }

func (n notifier) send(name string) error {
	signal, ok := signals[name]
	switch {
	case !ok:
		return fmt.Errorf("signal %q is not known", name)
	case n.signal == nil:
		return errors.New("a signal needs the exec hook: the sidecar is in another container than the application")
	}
	if err := n.signal(signal); err != nil {
		return fmt.Errorf("send %s to process 1: %w", name, err)
	}
	return nil
}

// request asks the pod itself, at the first of its addresses where somebody listens.
// Any answer but an error's will do; redirects are not followed. Certificates are not
// verified, which are for the names that clients use.
func (n notifier) request(ctx context.Context, order lifecycle.Notify) error {
	target, err := target(order)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer transport.CloseIdleConnections()
	for _, a := range n.addresses() {
		target.Host = netip.AddrPortFrom(a, order.Port).String()
		err = n.requestAt(ctx, client, order.Method, target)
		dial, ok := errors.AsType[*net.OpError](err)
		if !ok || dial.Op != "dial" || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("nobody can be reached on port %d: %w", order.Port, err)
}

// target is what is asked for, but for its host. Whoever answers at the helper's port may
// have made up the order, so that it can be nothing but a request to the pod itself, as
// the annotation can be: no other method, no other host, no other header.
func target(order lifecycle.Notify) (url.URL, error) {
	switch {
	case order.Method != http.MethodGet && order.Method != http.MethodPost, order.Scheme != "http" && order.Scheme != "https":
		return url.URL{}, errors.New("neither a request nor a signal that this hook knows: it may be older than its node's helper")
	case order.Port == 0 || !strings.HasPrefix(order.Path, "/"):
		return url.URL{}, errors.New("what is to be asked for has no port, or a path that does not begin with /: nothing was asked")
	}
	u, err := url.ParseRequestURI(order.Path)
	if err != nil {
		return url.URL{}, fmt.Errorf("read what is to be asked for: %w", err)
	}
	// A path is escaped when it is written, a query is not.
	return url.URL{Scheme: order.Scheme, Path: u.Path, RawPath: u.RawPath, RawQuery: strings.ReplaceAll(u.RawQuery, " ", "%20")}, nil
}

// addresses are those that are tried, in their order.
func (n notifier) addresses() []netip.Addr {
	all := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	for _, a := range n.own {
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			all = append(all, a)
		}
	}
	return all
}

func (n notifier) requestAt(ctx context.Context, client *http.Client, method string, target url.URL) error {
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteRequest: func(i httptrace.WroteRequestInfo) { sent.Store(i.Err == nil) },
	})
	req, err := http.NewRequestWithContext(ctx, method, target.String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("User-Agent", "conndrain-prestop/"+n.version)
	resp, err := client.Do(req)
	switch {
	case err != nil && sent.Load():
		return unanswered{err}
	case err != nil:
		return err // it names the request
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, notifyMaxAnswer)) // its status is what counts
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: status %s", method, target.String(), resp.Status)
	}
	return nil
}
