package node

import (
	"net"
	"net/netip"
	"sync"
)

const (
	// maxConnections and maxFromOne bound what is open at once, of all callers and of
	// one address. A pod has one connection for each of its containers' hooks.
	maxConnections = 2048
	maxFromOne     = 64
)

// limitListener closes connections beyond the limits as soon as they are accepted,
// so that one caller cannot keep the others out.
type limitListener struct {
	net.Listener

	mu   sync.Mutex
	all  int
	from map[netip.Addr]int
}

func newLimitListener(l net.Listener) *limitListener {
	return &limitListener{Listener: l, from: make(map[netip.Addr]int)}
}

// Accept blocks until there is a connection within the limits, or the listener is
// closed.
func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if err != nil || !l.take(from.Addr()) {
			_ = c.Close() // nothing was promised to it
			continue
		}
		return &limitConn{Conn: c, release: sync.OnceFunc(func() { l.giveBack(from.Addr()) })}, nil
	}
}

func (l *limitListener) take(a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= maxConnections || l.from[a] >= maxFromOne {
		return false
	}
	l.all++
	l.from[a]++
	return true
}

func (l *limitListener) giveBack(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.from[a]--; l.from[a] == 0 {
		delete(l.from, a)
	}
}

type limitConn struct {
	net.Conn
	release func()
}

func (c *limitConn) Close() error {
	c.release()
	return c.Conn.Close()
}
