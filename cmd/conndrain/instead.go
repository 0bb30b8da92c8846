package main

import (
	"context"
	"errors"
	"slices"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle/requests/looks"
)

// orAlone opens a watch by sockets alone where connection tracking may not be read, or
// tells nothing. A port of the scope that these know nothing of is a usage error.
func orAlone(open watchOpener, eyes *looks.Eyes, scope sockdiag.Scope) watchOpener {
	return func(ctx context.Context) (watch, error) {
		w, err := open(ctx)
		switch {
		case errors.Is(err, conntrack.ErrPermission), errors.Is(err, conntrack.ErrUnsupported), errors.Is(err, conntrack.ErrNotTracking):
		case err != nil:
			return nil, err
		case len(scope.Ports) == 0:
			return w, nil
		case w.Counts().Source == conntrack.FromSockets:
			if err := serves(eyes.Fresh(ctx), scope.Ports); err != nil {
				return nil, errors.Join(err, w.Close())
			}
			return w, nil
		default:
			if port, ok := unserved(eyes.Fresh(ctx), scope.Ports); ok {
				return &doubtful{w, port}, nil
			}
			return w, nil
		}
		if len(scope.Ports) > 0 {
			if err := serves(eyes.Fresh(ctx), scope.Ports); err != nil {
				return nil, err
			}
		}
		return newAlone(eyes, scope, err), nil
	}
}

// doubtful is a watch of a port on which nobody listens here, which may be a mistake or
// that of a rule that leads to another one.
type doubtful struct {
	watch
	port uint16
}

// serves returns a usage error for a port on which nobody listens and nobody is
// connected: that there is no session on it may be because another port is the
// server's, to which a rule of this machine leads. A look that has failed tells
// nothing. Why connection tracking does not tell is not said: what to do about that is
// another matter than the port, and --until requests needs none of it.
func serves(s looks.Sight, ports []uint16) error {
	if port, ok := unserved(s, ports); ok {
		return usagef("nobody listens on --port %d here, and the sockets do not tell where a rule leads its connections: "+
			"name the port on which the server itself listens, or leave --port out", port)
	}
	return nil
}

// unserved returns a port on which nobody listens and nobody is connected, if there is one.
func unserved(s looks.Sight, ports []uint16) (uint16, bool) {
	if s.Err != nil {
		return 0, false // it is what is unknown, which holds
	}
	for _, port := range ports {
		if !slices.Contains(s.Listened, port) && !slices.ContainsFunc(s.Sockets, func(k sockdiag.Socket) bool { return k.Local.Port() == port }) {
			return port, true
		}
	}
	return 0, false
}

// ownPorts is what a person should know who named ports where sockets alone decide.
const ownPorts = "--port is taken for the port of the server's own sockets: where a rule of this machine leads it to another one, " +
	"as that of a service mesh does, leave --port out or name that one"
