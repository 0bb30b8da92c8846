package hook

import (
	"context"
	"slices"
	"time"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
)

// lookTimeout is how long the kernel may take to list the pod's sockets.
const lookTimeout = time.Second

// sessions counts the live sessions among the pod's own sockets. known is false
// where the kernel does not tell: that is not none.
func (w *waiter) sessions(ctx context.Context) (open int, known bool) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	look, err := w.look(ctx)
	if err != nil {
		w.Logger.Debug("the pod's sockets are unknown", "err", err)
		return 0, false
	}
	// A server that has stopped to listen goes on with what it has accepted.
	for _, port := range look.Listening {
		if !slices.Contains(w.served, port) {
			w.served = append(w.served, port)
		}
	}
	return len(look.Counted(sockdiag.Scope{Listened: w.served})), true
}
