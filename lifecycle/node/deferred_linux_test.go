package node

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A listener that lets the kernel wait for data: the client is connected, and no
// socket says so.
func TestDeferredAcceptIsASession(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil, quick)
	var l net.Listener
	must(t, s.lab.Pod.Do(func() (err error) {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			_ = c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 60) })
			return err
		}}
		l, err = config.Listen(t.Context(), "tcp", netip.AddrPortFrom(s.lab.PodAddr, s.lab.PodPort).String())
		return err
	}))
	t.Cleanup(func() { _ = l.Close() })
	client, err := s.lab.Client.Dial(t.Context(), "tcp", netip.AddrPortFrom(s.lab.ServiceAddr, s.lab.ServicePort).String())
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	s.delete(60)
	s.withdraw()
	p := s.prestop()
	s.says(p, "to=draining")
	p.holds(10 * time.Second)
	_, err = client.Write([]byte("hello"))
	must(t, err)
	server, err := l.Accept()
	must(t, err)
	p.holds(2 * time.Second)
	session{client, server}.end(t)
	p.returns()
	s.says(p, "reason=Drained helper=true")
}
