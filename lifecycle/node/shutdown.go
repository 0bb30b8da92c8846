package node

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// shutdownLook is how long a shutdown may take to show on the Node: the kubelet
	// writes its status at the same time as it begins to kill pods
	// (pkg/kubelet/nodeshutdown, 1.37).
	shutdownLook = 2 * time.Second
	// nodeEvery is how often the Node is looked at meanwhile.
	nodeEvery = 400 * time.Millisecond
	// nodeTimeout and logindTimeout bound one look.
	nodeTimeout   = time.Second
	logindTimeout = 500 * time.Millisecond
	// shutdownMessage is the kubelet's error while it shuts the node down, alone or
	// among others in the message of the Ready condition.
	shutdownMessage = "node is shutting down"
)

// shutdown tells whether this node is shutting down. A pod that ends for that has
// no deletionTimestamp, and nothing else shows on it before its last container has
// ended. It is safe for concurrent use.
//
// The kubelet kills pods when logind signals PrepareForShutdown, and for no other
// shutdown. logind answers true for PreparingForShutdown from before that signal
// on, so its answer to a question that came after a hook began is final. Where it
// cannot be asked, the kubelet's own word on the Node has to do.
type shutdown struct {
	logind func(context.Context) (bool, error)
	node   func(context.Context) (*corev1.Node, error)
	// window is how long the kubelet gives a pod of this priority.
	window func(priority int32) time.Duration
	log    *slog.Logger

	// looking is held by whoever asks for the Node, so that a hundred pods that end
	// at once ask little more often than one.
	looking chan struct{}
	// last is the latest answer, guarded by looking.
	last struct {
		at  time.Time
		yes bool
	}
}

func newShutdown(c Config, client kubernetes.Interface) *shutdown {
	return &shutdown{
		logind: func(ctx context.Context) (bool, error) { return preparingForShutdown(ctx, c.SystemBus) },
		node: func(ctx context.Context) (*corev1.Node, error) {
			return client.CoreV1().Nodes().Get(ctx, c.Node, metav1.GetOptions{})
		},
		window: func(priority int32) time.Duration { return shutdownWindow(c, priority) },
		log:    c.Logger, looking: make(chan struct{}, 1),
	}
}

// begun says whether the node is shutting down. It blocks for as long as that may
// take to show, and for one look more at the most, or until ctx ends. An error means
// that it is unknown: nobody said no in the second half of that time.
func (s *shutdown) begun(ctx context.Context) (bool, error) {
	begin := time.Now()
	yes, err := s.askLogind(ctx)
	if err == nil {
		return yes, nil
	}
	s.log.Debug("logind cannot be asked: the Node is", "err", err)
	end := time.NewTimer(shutdownLook - time.Since(begin))
	defer end.Stop()
	tick := time.NewTicker(nodeEvery)
	defer tick.Stop()
	for denied := false; ; {
		yes, failure := s.onNode(ctx)
		if yes {
			return true, nil
		}
		if failure == nil {
			denied = time.Since(begin) >= shutdownLook/2
			err = nil
		} else if !denied {
			err = failure
		}
		select {
		case <-end.C: // a look that began now would be cut off by it
			return false, err
		default:
		}
		select {
		case <-tick.C:
		case <-end.C:
			return false, err
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func (s *shutdown) askLogind(ctx context.Context) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, logindTimeout)
	defer stop()
	return s.logind(ctx)
}

// onNode says whether the kubelet says so, by an answer that is hardly older than
// the call.
func (s *shutdown) onNode(ctx context.Context) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, nodeTimeout)
	defer stop()
	select {
	case s.looking <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	defer func() { <-s.looking }()
	now := time.Now()
	if now.Sub(s.last.at) < nodeEvery/2 {
		return s.last.yes, nil
	}
	n, err := s.node(ctx)
	if err != nil {
		return false, fmt.Errorf("get node: %w", err)
	}
	s.last.at, s.last.yes = now, saysShutdown(n)
	return s.last.yes, nil
}

func saysShutdown(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionFalse &&
				(strings.Contains(c.Message, shutdownMessage) || strings.Contains(c.Reason, shutdownMessage))
		}
	}
	return false
}
