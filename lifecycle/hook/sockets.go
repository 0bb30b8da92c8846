package hook

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle"
)

const (
	// lookTimeout is how long the kernel may take to list the pod's sockets.
	lookTimeout = time.Second
	// lookAtMost is the least pause between two looks, and lookShare the share of
	// time that they may take: 1/20, whatever a helper asks for.
	lookAtMost = 50 * time.Millisecond
	lookShare  = 20
)

// view is what a hook has seen of the sockets of its network namespace.
type view struct {
	take func(context.Context) (sockdiag.Look, error)
	// own are ports that the hook itself listens on.
	own []uint16
	// listened are all ports that some socket was seen to listen on: a server that
	// has stopped to listen goes on with what it has accepted.
	listened []uint16
	// next is when another look can be afforded.
	next time.Time
	// host is set where the namespace is the node's: then its sockets are not the
	// pod's, and only ports that were named tell of it. node is the node's address.
	host bool
	node netip.Addr
	// unknown is why the last look failed, or nil.
	unknown error
}

// look takes a look. It blocks for lookTimeout at the most. ok is false where the
// kernel does not tell: that is not none.
func (v *view) look(ctx context.Context) (look sockdiag.Look, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	began := time.Now()
	look, v.unknown = v.take(ctx)
	v.next = began.Add(max(lookAtMost, min(lookShare*time.Since(began), time.Second)))
	if v.unknown != nil {
		return look, false
	}
	for _, port := range look.Listening {
		if !slices.Contains(v.listened, port) {
			v.listened = append(v.listened, port)
		}
	}
	// No pod but one with the node's network has the node's address.
	v.host = v.host || v.node.IsValid() && !v.node.IsLoopback() && slices.Contains(look.Own, v.node)
	return look, true
}

// scope is what counts as inbound: on the named ports, or on every port that
// somebody listens on.
func (v *view) scope(ports []uint16) sockdiag.Scope {
	return sockdiag.Scope{Ports: ports, Listened: v.listened, Except: v.own}
}

// report is a look for the helper, or nil where there is none to be had. after is
// the mark of the last answer.
func (v *view) report(ctx context.Context, after string) *lifecycle.SocketList {
	look, ok := v.look(ctx)
	if !ok || v.host {
		return nil
	}
	counted := look.Counted(v.scope(nil))
	inbound := make(map[sockdiag.Socket]bool, len(counted))
	var in, other []lifecycle.Socket
	for _, s := range counted {
		inbound[s] = true
		in = append(in, lifecycle.Socket{Local: s.Local, Peer: s.Peer})
	}
	for _, s := range look.Live() {
		// The node knows nothing of loopback.
		if inbound[s] || s.Peer.Addr().IsLoopback() || slices.Contains(v.own, s.Local.Port()) {
			continue
		}
		other = append(other, lifecycle.Socket{Local: s.Local, Peer: s.Peer})
	}
	var opening []lifecycle.Socket
	for _, s := range look.Opening() {
		if !s.Peer.Addr().IsLoopback() && !slices.Contains(v.own, s.Local.Port()) {
			opening = append(opening, lifecycle.Socket{Local: s.Local, Peer: s.Peer})
		}
	}
	listening := v.listened
	if nested(look.Own) {
		listening = nil
	}
	l := lifecycle.NewSocketList(listening, in, other, opening)
	l.Mark, l.AgeSeconds = after, time.Since(look.At).Seconds()
	return &l
}

// nested says that the namespace has more than one address of a family, so that other
// namespaces may be behind it: a port that something listens on here may be led there,
// such as a published one of a Docker inside of the pod.
func nested(own []netip.Addr) bool {
	var four, six int
	for _, a := range own {
		switch {
		case a.IsLoopback() || a.IsLinkLocalUnicast():
		case a.Is4():
			four++
		default:
			six++
		}
	}
	return four > 1 || six > 1
}

// sessions counts the live ones. known is false where the sockets do not tell.
func (v *view) sessions(ctx context.Context, ports []uint16) (open int, known bool) {
	look, ok := v.look(ctx)
	if !ok || v.host && len(ports) == 0 {
		return 0, false
	}
	return len(look.Counted(v.scope(ports))), true
}
