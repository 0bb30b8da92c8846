package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/conndrain/conndrain/lifecycle"
)

// hostPod has its node's network and names a port of its own.
func hostPod(change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "edge", Name: "proxy-1", UID: "uid-9",
			Annotations: map[string]string{lifecycle.PortsAnnotation: "8443"},
		},
		Spec: corev1.PodSpec{HostNetwork: true},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// review is what the API says of that pod's token.
func review(change ...func(*authenticationv1.TokenReviewStatus)) authenticationv1.TokenReviewStatus {
	s := authenticationv1.TokenReviewStatus{
		Authenticated: true, Audiences: []string{"conndrain"},
		User: authenticationv1.UserInfo{
			Username: "system:serviceaccount:edge:proxy",
			Extra: map[string]authenticationv1.ExtraValue{
				extraPodName: {"proxy-1"}, extraPodUID: {"uid-9"}, extraNodeName: {"n1"},
			},
		},
	}
	for _, c := range change {
		c(&s)
	}
	return s
}

type apiOfTokens struct {
	status  authenticationv1.TokenReviewStatus
	err     error
	reviews int
}

func (a *apiOfTokens) identity(pod *corev1.Pod) *identity {
	i := newIdentity(Config{Node: "n1", Logger: slog.New(slog.DiscardHandler)}, nil, func(namespace, name string) *corev1.Pod {
		if pod != nil && pod.Namespace == namespace && pod.Name == name {
			return pod
		}
		return nil
	})
	i.review = func(context.Context, string) (authenticationv1.TokenReviewStatus, error) {
		a.reviews++
		return a.status, a.err
	}
	return i
}

func TestP13TokensOfHostNetworkPods(t *testing.T) {
	extra := func(key string, values ...string) func(*authenticationv1.TokenReviewStatus) {
		return func(s *authenticationv1.TokenReviewStatus) { s.User.Extra[key] = values }
	}
	for _, tc := range []struct {
		name   string
		header string
		status authenticationv1.TokenReviewStatus
		pod    *corev1.Pod
		err    error // nil: the pod
		any    bool  // some other error
	}{
		{"a pod's", "Bearer t", review(), hostPod(), nil, false},
		{"none", "", review(), hostPod(), errNoToken, false},
		{"not a bearer", "Basic dDp0", review(), hostPod(), errNoToken, false},
		{"an empty one", "Bearer ", review(), hostPod(), errNoToken, false},
		{"not authenticated", "Bearer t", review(func(s *authenticationv1.TokenReviewStatus) { s.Authenticated = false }), hostPod(), errRefused, false},
		{"for another audience", "Bearer t", review(func(s *authenticationv1.TokenReviewStatus) { s.Audiences = []string{"api"} }), hostPod(), errRefused, false},
		{"an API that knows no audiences", "Bearer t", review(func(s *authenticationv1.TokenReviewStatus) { s.Audiences = nil }), hostPod(), errRefused, false},
		{"a user's", "Bearer t", review(func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "alice" }), hostPod(), errRefused, false},
		{"of another node", "Bearer t", review(extra(extraNodeName, "n2")), hostPod(), errRefused, false},
		{"of no node", "Bearer t", review(extra(extraNodeName)), hostPod(), errRefused, false},
		{"of two pods", "Bearer t", review(extra(extraPodName, "proxy-1", "proxy-2")), hostPod(), errRefused, false},
		{"bound to no pod", "Bearer t", review(extra(extraPodUID)), hostPod(), errRefused, false},
		{"of a pod that had the name before", "Bearer t", review(extra(extraPodUID, "uid-1")), hostPod(), nil, true},
		{"of a pod that is not known", "Bearer t", review(), nil, nil, true},
		{"of a pod that has ended", "Bearer t", review(), hostPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), nil, true},
		{"of a pod with an address of its own", "Bearer t", review(), hostPod(func(p *corev1.Pod) { p.Spec.HostNetwork = false }), errRefused, false},
		{"of a pod that names no ports", "Bearer t", review(), hostPod(func(p *corev1.Pod) { p.Annotations = nil }), errNoPorts, false},
		{"of a pod whose ports are malformed", "Bearer t", review(), hostPod(func(p *corev1.Pod) {
			p.Annotations[lifecycle.PortsAnnotation] = "https"
		}), errNoPorts, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api := &apiOfTokens{status: tc.status}
			pod, err := api.identity(tc.pod).of(t.Context(), tc.header)
			switch {
			case tc.any && err != nil && pod == nil:
			case tc.err != nil && errors.Is(err, tc.err) && pod == nil:
			case !tc.any && tc.err == nil && err == nil && pod == tc.pod:
			default:
				t.Errorf("pod %v, error %v", pod, err)
			}
		})
	}
}

// Whatever a process of the node sends, the API is asked only so often, and not
// twice for the same.
func TestTokenReviewsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiOfTokens{status: review()}
		i := api.identity(hostPod())
		for range 100 {
			if _, err := i.of(t.Context(), "Bearer t"); err != nil {
				t.Fatal(err)
			}
		}
		if api.reviews != 1 {
			t.Errorf("%d reviews of one token", api.reviews)
		}
		api.reviews, api.status = 0, authenticationv1.TokenReviewStatus{}
		refused := 0
		for n := range 1000 {
			if _, err := i.of(t.Context(), fmt.Sprintf("Bearer guess-%d", n)); errors.Is(err, errTooManyReviews) {
				refused++
			}
		}
		if api.reviews > reviewBurst || api.reviews+refused != 1000 {
			t.Errorf("%d reviews of 1000 guesses at once, %d refused", api.reviews, refused)
		}
		// With time for it, all are asked for, and memory is bounded.
		for n := range 2 * maxReviewed {
			<-time.After(time.Second / reviewsPerSecond)
			if _, err := i.of(t.Context(), fmt.Sprintf("Bearer later-%d", n)); !errors.Is(err, errRefused) {
				t.Fatal(err)
			}
		}
		if len(i.reviewed) > maxReviewed {
			t.Errorf("%d answers are kept", len(i.reviewed))
		}
	})
}

// A hook that was identified goes on while the API is away; nobody else is then.
func TestTokensWhileTheAPIIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiOfTokens{status: review()}
		i := api.identity(hostPod())
		if _, err := i.of(t.Context(), "Bearer t"); err != nil {
			t.Fatal(err)
		}
		api.err = errors.New("connection refused")
		<-time.After(2 * reviewedFor)
		if _, err := i.of(t.Context(), "Bearer t"); err != nil {
			t.Errorf("a known token got %v", err)
		}
		if _, err := i.of(t.Context(), "Bearer other"); !errors.Is(err, api.err) {
			t.Errorf("an unknown token got %v", err)
		}
		<-time.After(outageFor)
		if _, err := i.of(t.Context(), "Bearer t"); !errors.Is(err, api.err) {
			t.Errorf("after a long time a known token got %v", err)
		}
		// A token that is withdrawn is not believed for longer than a moment.
		api.err = nil
		if _, err := i.of(t.Context(), "Bearer t"); err != nil {
			t.Fatal(err)
		}
		api.status.Authenticated = false
		<-time.After(reviewedFor + time.Second)
		if _, err := i.of(t.Context(), "Bearer t"); !errors.Is(err, errRefused) {
			t.Errorf("a withdrawn token got %v", err)
		}
	})
}

// Reviews that hang hold no more than a few of the API's answers at once, and
// nobody for long.
func TestTokenReviewsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &apiOfTokens{}
		i := api.identity(hostPod())
		var mu sync.Mutex
		var now, most int
		i.review = func(ctx context.Context, _ string) (authenticationv1.TokenReviewStatus, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			now--
			mu.Unlock()
			return authenticationv1.TokenReviewStatus{}, ctx.Err()
		}
		done := make(chan error)
		begin := time.Now()
		for n := range reviewBurst {
			go func() {
				_, err := i.of(t.Context(), fmt.Sprintf("Bearer t-%d", n))
				done <- err
			}()
			synctest.Wait()
		}
		for range reviewBurst {
			if err := <-done; err == nil {
				t.Error("a token that nobody reviewed proved a pod")
			}
		}
		if most != reviewsAtOnce || time.Since(begin) > 2*reviewTimeout {
			t.Errorf("%d at once, %s", most, time.Since(begin))
		}
	})
}
