package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// localDelay is how long a pod behind a Service with externalTrafficPolicy Local
	// is held after its withdrawal: load balancers learn of it by a health check of
	// theirs, and kube-proxy goes on sending to it until then.
	localDelay = 15 * time.Second
	// maxServices is how many Services of one pod are asked for. A pod with more of
	// them is taken for one behind a load balancer.
	maxServices = 16
)

// balancers tell whether load balancers may send to a pod of a Service for longer
// than its EndpointSlices say.
type balancers struct{ client kubernetes.Interface }

// lag says whether one of these Services has externalTrafficPolicy Local. It blocks
// until the API has answered for them, one after the other, or ctx ends. One that
// is gone has none. What cannot be told counts as yes, because what it costs is
// fifteen seconds that the deadline bounds, and a no costs connections.
func (b balancers) lag(ctx context.Context, namespace string, services []string) (bool, error) {
	for _, name := range services {
		local, err := b.local(ctx, namespace, name)
		if err != nil || local {
			return true, err
		}
	}
	return false, nil
}

func (b balancers) local(ctx context.Context, namespace, name string) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, liveTimeout)
	defer stop()
	s, err := b.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal, nil
}

// delays are what a vigil knows of its pod's balancers. It is used by one goroutine.
type delays struct {
	asked   map[string]struct{}
	pending bool
	lag     bool
	answers chan lagAnswer
}

type lagAnswer struct {
	lag bool
	err error
}

func newDelays() delays {
	return delays{asked: make(map[string]struct{}), answers: make(chan lagAnswer, 1)}
}

// askForDelay begins to ask for those of the pod's Services that were not asked for yet.
func (v *vigil) askForDelay(ctx context.Context) {
	d := &v.delays
	if d.pending || d.lag || v.settingsNow().MinDelay != nil {
		return
	}
	var fresh []string
	for _, name := range v.route.services {
		if _, asked := d.asked[name]; !asked {
			d.asked[name] = struct{}{}
			fresh = append(fresh, name)
		}
	}
	switch {
	case len(fresh) == 0:
		return
	case len(d.asked) > maxServices:
		d.lag = true
		return
	}
	d.pending = true
	namespace := v.current().Namespace
	v.tasks.Go(func() {
		lag, err := v.balancers.lag(ctx, namespace, fresh)
		d.answers <- lagAnswer{lag, err}
	})
}

// delayed takes in an answer.
func (v *vigil) delayed(a lagAnswer) {
	v.delays.pending, v.delays.lag = false, a.lag
	if a.err != nil {
		v.log.Warn("it is unknown whether load balancers lag behind: taken for yes", "err", a.err, "seconds", localDelay.Seconds())
	}
}

// usual is the least time from the withdrawal to the release where the pod does not
// say. While it is being asked for, nothing is let go.
func (d *delays) usual() time.Duration {
	if d.lag || d.pending {
		return localDelay
	}
	return 0
}
