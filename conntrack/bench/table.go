//go:build linux

package main

import (
	"fmt"
	"iter"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// podAddr is the pod whose sessions are asked for, podSessions how many it has.
var podAddr = netip.MustParseAddr("10.244.1.7")

const podSessions = 4000

// newTable makes a namespace whose table has size entries, podSessions of them
// the pod's.
func newTable(size int) (*netlab.Namespace, error) {
	n, err := netlab.New()
	if err != nil {
		return nil, err
	}
	if err := n.Track(); err != nil {
		_ = n.Close()
		return nil, err
	}
	if err := netlab.Fill(n, node(size)); err != nil {
		_ = n.Close()
		return nil, err
	}
	return n, nil
}

// node yields the flows of a busy node: one pod with podSessions, and others of
// up to podSessions each, all through a Service of their own.
func node(size int) iter.Seq[netlab.Flow] {
	return func(yield func(netlab.Flow) bool) {
		for i := range size {
			number, i := i/podSessions, i%podSessions
			pod := podAddr
			if number > 0 {
				pod = netip.AddrFrom4([4]byte{10, 245, byte(number >> 8), byte(number)})
			}
			service := netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)})
			client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), uint16(20000+i))
			f := netlab.Flow{
				Protocol: unix.IPPROTO_TCP,
				Orig:     netlab.Tuple{Src: client, Dst: netip.AddrPortFrom(service, 80)},
				Reply:    netlab.Tuple{Src: netip.AddrPortFrom(pod, 8080), Dst: client},
			}
			if !yield(f) {
				return
			}
		}
	}
}

// kilo prints a table's size.
func kilo(size int) string {
	if size >= 1_000_000 {
		return fmt.Sprintf("%dM", size/1_000_000)
	}
	return fmt.Sprintf("%dk", size/1000)
}
