package hook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
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
// notifyTimeout or until ctx ends.
func (n notifier) notify(ctx context.Context, order lifecycle.Notify) lifecycle.Notified {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	err := errors.New("neither a request nor a signal that this hook knows: it may be older than its node's helper")
	switch {
	case order.Signal != "":
		err = n.send(order.Signal)
	case order.Scheme == "http" || order.Scheme == "https":
		err = n.request(ctx, order)
	}
	if err != nil {
		return lifecycle.Notified{Failure: err.Error()}
	}
	return lifecycle.Notified{}
}

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
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer transport.CloseIdleConnections()
	var err error
	for _, a := range n.addresses() {
		err = n.requestAt(ctx, client, order, a)
		dial, ok := errors.AsType[*net.OpError](err)
		if !ok || dial.Op != "dial" || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("nobody can be reached on port %d: %w", order.Port, err)
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

func (n notifier) requestAt(ctx context.Context, client *http.Client, order lifecycle.Notify, a netip.Addr) error {
	url := order.Scheme + "://" + net.JoinHostPort(a.String(), strconv.Itoa(int(order.Port))) + order.Path
	req, err := http.NewRequestWithContext(ctx, order.Method, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("User-Agent", "conndrain-prestop/"+n.version)
	resp, err := client.Do(req)
	if err != nil {
		return err // it names the request
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, notifyMaxAnswer)) // its status is what counts
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: status %s", order.Method, url, resp.Status)
	}
	return nil
}
