package hook

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/conndrain/conndrain/lifecycle"
)

func TestPlaces(t *testing.T) {
	t.Parallel()
	kubelet, one, two := netip.MustParseAddr("10.244.1.1"), netip.MustParseAddr("10.244.2.2"), netip.MustParseAddr("10.244.3.3")
	var p places
	var all []*place
	for range maxHooks {
		all = append(all, p.take(one, time.Time{}))
	}
	if p.take(one, time.Time{}) != nil {
		t.Error("more than there are, to one that has them all")
	}
	mine := p.take(kubelet, time.Time{})
	if mine == nil || p.taken != maxHooks {
		t.Fatalf("one that has none gets none: %d are taken", p.taken)
	}
	lost := all[maxHooks-1]
	select {
	case <-lost.lost:
	default:
		t.Error("it is not told that it has lost its place")
	}
	p.leave(lost) // as its hook does
	if p.taken != maxHooks {
		t.Errorf("%d are taken, want %d", p.taken, maxHooks)
	}
	for range maxHooks {
		p.take(two, time.Time{})
	}
	if n := len(p.of[one]) - len(p.of[two]); n < 0 || n > 1 || len(p.of[kubelet]) != 1 {
		t.Errorf("%d, %d and %d have a place, want about as many of the first two, and the last", len(p.of[one]), len(p.of[two]), len(p.of[kubelet]))
	}
	select {
	case <-mine.lost:
		t.Error("the one with the fewest has lost its place")
	default:
	}
	for _, held := range []netip.Addr{kubelet, one, two} {
		for len(p.of[held]) > 0 {
			p.leave(p.of[held][0])
		}
	}
	if p.taken != 0 || len(p.of) != 0 {
		t.Errorf("%d are taken by %d in the end", p.taken, len(p.of))
	}
}

// receive blocks until something comes.
func receive[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatal("nothing comes")
	}
	return got
}

// A neighbour that asks for as many hooks as there are places takes none from the kubelet.
func TestNeighbourTakesNoPlaceOfTheKubelet(t *testing.T) {
	t.Parallel()
	g := &gate{opened: make(chan struct{}), reason: lifecycle.Drained}
	s := newSidecar(t, g.answer)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	refused := make(chan struct{}, 2*maxHooks)
	for range maxHooks + 1 { // its last is refused as soon as all others are held
		go func() {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
			c, err := d.DialContext(ctx, "tcp", s.url[len("http://"):])
			if err != nil {
				return
			}
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			if _, err := io.WriteString(c, "GET "+DrainPath+" HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n"); err != nil {
				return
			}
			if _, err := io.ReadAll(c); err == nil {
				refused <- struct{}{}
			}
		}()
	}
	receive(t, refused)
	answer := make(chan string, 1)
	go func() {
		text, err := s.call(t.Context(), DrainPath)
		answer <- fmt.Sprint(text, err)
	}()
	receive(t, refused) // whose place it has
	select {
	case got := <-answer:
		t.Errorf("the kubelet's hook is not held: %s", got)
	default:
	}
	close(g.opened)
	if got := receive(t, answer); !strings.HasPrefix(got, string(lifecycle.Drained)) {
		t.Errorf("the kubelet's hook ends with %q", got)
	}
	stop()
	s.term()
	s.ended()
}
