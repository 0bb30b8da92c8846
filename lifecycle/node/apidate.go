package node

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The typed client does not show an answer's headers. A request that wants to know
// when it was answered, by the server's clock, carries a place for it.
type apiDateKey struct{}

// withAPIDate returns a context whose requests write the date of their answer into
// the time. It stays zero where the answer has none or the transport is not that
// of WithAPIDates.
func withAPIDate(ctx context.Context) (context.Context, *time.Time) {
	date := new(time.Time)
	return context.WithValue(ctx, apiDateKey{}, date), date
}

// WithAPIDates wraps the transport of the client that a Helper gets, so that it can
// tell the API server's clock. It is safe for concurrent use.
func WithAPIDates(next http.RoundTripper) http.RoundTripper { return datedTransport{next} }

type datedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper. The caller of a request waits for it, so
// nobody reads the date meanwhile.
func (t datedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if place, ok := r.Context().Value(apiDateKey{}).(*time.Time); ok {
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			*place = date
		}
	}
	return resp, nil
}

// terminatingFor is how long ago the pod's deletion began, both told by the API
// server's clock: that of this machine may be another. The API moves the
// deletionTimestamp with the grace period, so their difference stays the moment of
// the first request. It is 0 where that cannot be told.
func terminatingFor(pod *corev1.Pod, date time.Time) time.Duration {
	if date.IsZero() || pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil {
		return 0
	}
	return max(0, date.Sub(pod.DeletionTimestamp.Add(-graceOf(pod))))
}
