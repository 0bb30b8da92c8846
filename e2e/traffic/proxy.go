package traffic

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// ProxyPort is where the program listens as a proxy.
const ProxyPort = 15001

// Proxy is what a mesh puts into a pod: connections to the pod's ports are redirected to it (see Redirect), and it
// connects to the port that was meant, on this pod's loopback; it says so for each connection. It blocks until the context
// ends, and then until every connection has been closed.
func Proxy(ctx context.Context, port int, say func(client net.Addr, meant netip.AddrPort)) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		connections.Go(func() { proxyOne(ctx, conn.(*net.TCPConn), say) })
	}
}

func proxyOne(ctx context.Context, client *net.TCPConn, say func(net.Addr, netip.AddrPort)) {
	defer client.Close()
	meant, err := originalDestination(client)
	if err != nil {
		return
	}
	say(client.RemoteAddr(), meant)
	host := "127.0.0.1"
	if meant.Addr().Is6() {
		host = "::1"
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(meant.Port()))))
	if err != nil {
		return
	}
	server := conn.(*net.TCPConn)
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { client.Close(); server.Close() })
	defer stop()

	// each direction ends on its own: a half-closed connection stays half closed
	var directions sync.WaitGroup
	for _, d := range [][2]*net.TCPConn{{server, client}, {client, server}} {
		directions.Go(func() {
			if _, err := io.Copy(d[0], d[1]); err != nil {
				d[0].Close()
				return
			}
			_ = d[0].CloseWrite()
		})
	}
	directions.Wait()
}

// originalDestination is where a redirected connection was meant to go, as this network namespace's conntrack knows.
func originalDestination(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("get original destination: %w", err)
	}
	v4 := netip.MustParseAddrPort(c.LocalAddr().String()).Addr().Unmap().Is4()
	var to netip.AddrPort
	var optErr error
	err = raw.Control(func(fd uintptr) {
		if v4 {
			// the struct that the kernel fills is a sockaddr_in, which has the size of this one's head
			var m *unix.IPv6Mreq
			if m, optErr = unix.GetsockoptIPv6Mreq(int(fd), unix.SOL_IP, unix.SO_ORIGINAL_DST); optErr == nil {
				a := m.Multiaddr
				to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(a[4:8])), uint16(a[2])<<8|uint16(a[3]))
			}
			return
		}
		// sockaddr_in6 and a word for its interface's MTU
		var m *unix.IPv6MTUInfo
		if m, optErr = unix.GetsockoptIPv6MTUInfo(int(fd), unix.SOL_IPV6, unix.SO_ORIGINAL_DST); optErr == nil {
			port := m.Addr.Port // in network order
			to = netip.AddrPortFrom(netip.AddrFrom16(m.Addr.Addr), port<<8|port>>8)
		}
	})
	if err == nil {
		err = optErr
	}
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("get original destination: %w", err)
	}
	return to, nil
}
