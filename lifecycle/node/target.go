package node

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// retarget lets go of a watch for something else than what counts now: the pod asks
// for that, or a slice that came late says so. Until there is another one nothing is
// known of its sessions.
func (v *vigil) retarget(now time.Time) {
	s := v.wanted()
	ports := v.ports(s)
	if v.watch == nil || (s.IdleAfter == v.asked.IdleAfter && slices.Equal(ports, v.target.Ports)) {
		return
	}
	v.log.Info("something else counts as a session of the pod", "idle-after", s.IdleAfter, "ports", ports)
	v.closeWatch()
	v.openAt = now
}

func (v *vigil) closeWatch() {
	if err := v.watch.Close(); err != nil {
		v.log.Warn("the sessions' watch did not close", "err", err)
	}
	v.watch = nil
}

// wanted is what the pod asks for. The addresses of a hostNetwork pod are the
// node's: one that takes the names of its ports away keeps those that it had.
func (v *vigil) wanted() lifecycle.Settings {
	s := v.settingsNow()
	if len(s.Ports) == 0 && v.current().Spec.HostNetwork {
		s.Ports = v.asked.Ports
	}
	return s
}

// ports are those that count: what the pod names, or else what it serves. A port
// that was ever in a slice goes on to count when the pod has been taken out of it.
func (v *vigil) ports(asked lifecycle.Settings) []uint16 {
	if len(asked.Ports) > 0 {
		return asked.Ports
	}
	return served(v.listed, v.current())
}

// targetOf is what counts as a session of the pod. It is not ok where nothing may:
// of a hostNetwork pod nothing counts but the ports that it names.
func (v *vigil) targetOf(pod *corev1.Pod) (conntrack.Target, bool) {
	v.asked = v.wanted()
	t := conntrack.Target{
		Addresses:   addressesOf(pod),
		Ports:       v.ports(v.asked),
		IdleAfter:   v.asked.IdleAfter,
		ProbedPorts: probed(pod),
		// Where nothing is tracked, they alone can tell.
		SocketsReported: v.sockets.reporting(time.Now()),
	}
	own, err := v.own()
	if err != nil {
		v.log.Warn("the node's addresses are unknown: its probes look like traffic", "err", err)
	}
	t.ProbedFrom = own
	if !pod.Spec.HostNetwork {
		return t, true
	}
	t.Addresses = append(t.Addresses, reachable(own)...)
	return t, len(v.asked.Ports) > 0
}

// reachable leaves the addresses that a client elsewhere can have connected to.
func reachable(own []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(own), func(a netip.Addr) bool {
		return a.IsLoopback() || a.IsUnspecified() || a.IsMulticast()
	})
}
