package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/conndrain/conndrain/lifecycle"
)

// What anything on the node can make the helper ask of the API.
const (
	reviewsPerSecond = 5
	reviewBurst      = 20
	reviewsAtOnce    = 4
	reviewTimeout    = 3 * time.Second
	// reviewedFor is how long an answer is good for, outageFor for how long one that
	// identified somebody is while the API does not answer.
	reviewedFor  = 30 * time.Second
	outageFor    = 10 * time.Minute
	maxReviewed  = 256
	maxTokenSize = 8 << 10
)

// What a pod-bound token's review has of its pod (KEP-4193).
const (
	extraPodName  = "authentication.kubernetes.io/pod-name"
	extraPodUID   = "authentication.kubernetes.io/pod-uid"
	extraNodeName = "authentication.kubernetes.io/node-name"
	accountPrefix = "system:serviceaccount:"
)

// Messages for whoever runs a hook on the node's own network.
var (
	errNoToken = errors.New("a hostNetwork pod has its node's address and has to prove which pod it is: mount a projected service account token with the audience " +
		lifecycle.TokenAudience + " and let the hook send it, and name the pod's ports in the annotation " + lifecycle.PortsAnnotation)
	errRefused = errors.New("the token proves no hostNetwork pod of this node: it has to be a projected service account token of that pod with the audience " +
		lifecycle.TokenAudience)
	errNoPorts = errors.New("a hostNetwork pod has its node's addresses: name the ports that are its own in the annotation " +
		lifecycle.PortsAnnotation + ", by number or by a container port's name")
	errTooManyReviews = errors.New("too many tokens have to be reviewed just now: try again")
)

// identity knows the hostNetwork pods of this node by their tokens. What reviews
// cost the API is bounded, whoever asks. It is safe for concurrent use.
type identity struct {
	node   string
	review func(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error)
	pod    func(namespace, name string) *corev1.Pod
	log    *slog.Logger

	limit *rate.Limiter
	slots chan struct{}

	mu       sync.Mutex
	reviewed map[[sha256.Size]byte]reviewed
}

// reviewed is what a token proved, and when. The zero bearer is nobody.
type reviewed struct {
	at     time.Time
	bearer bearer
}

type bearer struct {
	namespace, name string
	uid             types.UID
}

func newIdentity(c Config, client kubernetes.Interface, pod func(namespace, name string) *corev1.Pod) *identity {
	return &identity{
		node: c.Node, pod: pod, log: c.Logger,
		review: func(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
			r, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{lifecycle.TokenAudience}},
			}, metav1.CreateOptions{})
			if err != nil {
				return authenticationv1.TokenReviewStatus{}, fmt.Errorf("review token: %w", err)
			}
			return r.Status, nil
		},
		limit: rate.NewLimiter(reviewsPerSecond, reviewBurst), slots: make(chan struct{}, reviewsAtOnce),
		reviewed: make(map[[sha256.Size]byte]reviewed),
	}
}

// of returns the hostNetwork pod of this node that the Authorization header proves.
// It blocks while the API reviews the token, or until ctx ends. Errors are for the
// person who set up the pod. No token is kept or logged, only its hash.
func (i *identity) of(ctx context.Context, header string) (*corev1.Pod, error) {
	token, ok := strings.CutPrefix(header, "Bearer ")
	if !ok || token == "" || len(token) > maxTokenSize {
		return nil, errNoToken
	}
	b, err := i.bearerOf(ctx, token)
	if err != nil {
		return nil, err
	}
	if b == (bearer{}) {
		return nil, errRefused
	}
	pod := i.pod(b.namespace, b.name)
	switch {
	case pod == nil || pod.UID != b.uid || ended(pod):
		return nil, fmt.Errorf("pod %s/%s is not known here yet, or has ended", b.namespace, b.name)
	case !pod.Spec.HostNetwork:
		return nil, errRefused // its address would tell
	}
	if s, _ := lifecycle.ParseAnnotations(pod.Annotations, named(pod)); len(s.Ports) == 0 {
		return nil, errNoPorts
	}
	return pod, nil
}

// bearerOf returns whom the token proves, or nobody.
func (i *identity) bearerOf(ctx context.Context, token string) (bearer, error) {
	key := sha256.Sum256([]byte(token))
	before, known := i.recall(key)
	if known && time.Since(before.at) < reviewedFor {
		return before.bearer, nil
	}
	status, err := i.ask(ctx, token)
	if err != nil {
		// A hook that was identified goes on while the API is away.
		if known && before.bearer != (bearer{}) && time.Since(before.at) < outageFor {
			return before.bearer, nil
		}
		return bearer{}, err
	}
	b := i.proven(status)
	i.remember(key, reviewed{time.Now(), b})
	return b, nil
}

// ask has the API review a token, within the limits.
func (i *identity) ask(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	if !i.limit.Allow() {
		return authenticationv1.TokenReviewStatus{}, errTooManyReviews
	}
	ctx, stop := context.WithTimeout(ctx, reviewTimeout)
	defer stop()
	select {
	case i.slots <- struct{}{}:
		defer func() { <-i.slots }()
	case <-ctx.Done():
		return authenticationv1.TokenReviewStatus{}, errTooManyReviews
	}
	return i.review(ctx, token)
}

// proven is whom a review proves: a pod of this node, for our audience.
func (i *identity) proven(s authenticationv1.TokenReviewStatus) bearer {
	one := func(key string) string {
		if v := s.User.Extra[key]; len(v) == 1 {
			return v[0]
		}
		return ""
	}
	account, ok := strings.CutPrefix(s.User.Username, accountPrefix)
	namespace, _, _ := strings.Cut(account, ":")
	b := bearer{namespace, one(extraPodName), types.UID(one(extraPodUID))}
	if !ok || !s.Authenticated || !slices.Contains(s.Audiences, lifecycle.TokenAudience) ||
		one(extraNodeName) != i.node || b.namespace == "" || b.name == "" || b.uid == "" {
		i.log.Debug("a token proves no pod of this node", "authenticated", s.Authenticated, "err", s.Error)
		return bearer{}
	}
	return b
}

func (i *identity) recall(key [sha256.Size]byte) (reviewed, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r, known := i.reviewed[key]
	return r, known
}

// remember keeps an answer. Where there are too many, those of nobody go first and
// then any: what is forgotten is asked again.
func (i *identity) remember(key [sha256.Size]byte, r reviewed) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for k, old := range i.reviewed {
		if time.Since(old.at) > outageFor || (old.bearer == (bearer{}) && time.Since(old.at) > reviewedFor) {
			delete(i.reviewed, k)
		}
	}
	for k, old := range i.reviewed {
		if len(i.reviewed) < maxReviewed {
			break
		}
		if old.bearer == (bearer{}) {
			delete(i.reviewed, k)
		}
	}
	for k := range i.reviewed {
		if len(i.reviewed) < maxReviewed {
			break
		}
		delete(i.reviewed, k)
	}
	i.reviewed[key] = r
}
