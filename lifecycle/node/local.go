package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/conndrain/conndrain/lifecycle"
)

// local answers people who may run a command in the helper's own container: what
// drains, and whom to let go. Whoever may do that has the node's network and
// CAP_NET_ADMIN anyway, so that they are believed who they say they are.
type local struct {
	status  func() lifecycle.NodeStatus
	release func(context.Context, lifecycle.ReleaseRequest) lifecycle.ReleaseAnswer
	log     *slog.Logger
}

func (l local) http() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+lifecycle.StatusPath, func(w http.ResponseWriter, _ *http.Request) {
		l.answer(w, l.status())
	})
	mux.HandleFunc("POST "+lifecycle.ReleasePath, func(w http.ResponseWriter, r *http.Request) {
		var request lifecycle.ReleaseRequest
		body := http.MaxBytesReader(w, r.Body, lifecycle.MaxRequestBytes)
		if err := json.NewDecoder(body).Decode(&request); err != nil {
			http.Error(w, "read request: "+err.Error(), http.StatusBadRequest)
			return
		}
		l.log.Info("release", "by", request.By, "why", request.Why, "all", request.All, "pods", len(request.Pods))
		l.answer(w, l.release(r.Context(), request))
	})
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       headerTimeout + requestTimeout,
		WriteTimeout:      time.Minute,
		ErrorLog:          slog.NewLogLogger(l.log.Handler(), slog.LevelDebug),
	}
}

func (l local) answer(w http.ResponseWriter, a any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(a); err != nil {
		l.log.Debug("write answer", "err", err) // whoever asked is gone
	}
}

// serveLocal answers at the path until ctx ends. Without a folder that can be
// written nobody can ask, and nothing else is missing.
func (h *Helper) serveLocal(ctx context.Context, g *errgroup.Group) {
	if h.config.LocalSocket == "" {
		return
	}
	listener, err := listenLocal(ctx, h.config.LocalSocket)
	if err != nil {
		h.config.Logger.Warn("kubectl conndrain cannot ask this helper: it needs a folder of its own, such as an emptyDir at /run/conndrain", "err", err)
		return
	}
	s := local{h.status, h.drains.release, h.config.Logger}.http()
	g.Go(func() error {
		<-ctx.Done()
		last, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer stop()
		if err := s.Shutdown(last); err != nil {
			return s.Close()
		}
		return nil
	})
	g.Go(func() error {
		if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", listener.Addr(), err)
		}
		return nil
	})
}

// listenLocal makes the socket, in a folder that only the helper's user can enter:
// there is no moment at which another one could connect. A socket that an earlier
// helper of the pod has left behind is removed.
func listenLocal(ctx context.Context, path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder of the socket: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fmt.Errorf("look at folder of the socket: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("folder %s of the socket is open to others (%s)", dir, info.Mode().Perm())
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// status is how the node's drains stand now.
func (h *Helper) status() lifecycle.NodeStatus {
	return lifecycle.NodeStatus{
		Node: h.config.Node, Version: h.config.Version, Disabled: h.config.Disabled,
		NotReady: h.ready.faults(), Drains: h.drains.status(time.Now()),
	}
}
