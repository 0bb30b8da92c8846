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
	// alwaysFromOne are had by everybody, however many the others have: those who are
	// known are as many as the node has pods.
	alwaysFromOne = 4
	// maxStrangers bounds what those have open who will only be told to go away.
	maxStrangers = 256
)

// limitListener closes connections beyond the limits as soon as they are accepted,
// so that one caller cannot keep the others out, and strangers together cannot keep
// out those who are known.
type limitListener struct {
	net.Listener
	known func(netip.Addr) bool // nil: everybody

	mu        sync.Mutex
	all       int
	strangers int
	from      map[netip.Addr]int
}

func newLimitListener(l net.Listener, known func(netip.Addr) bool) *limitListener {
	return &limitListener{Listener: l, known: known, from: make(map[netip.Addr]int)}
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
		if err != nil {
			_ = c.Close() // nothing was promised to it
			continue
		}
		a := from.Addr().Unmap().WithZone("")
		stranger := l.known != nil && !l.known(a)
		if !l.take(a, stranger) {
			_ = c.Close() // as above
			continue
		}
		return &limitConn{Conn: c, release: sync.OnceFunc(func() { l.giveBack(a, stranger) })}, nil
	}
}

func (l *limitListener) take(a netip.Addr, stranger bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (l.all >= maxConnections && (stranger || l.from[a] >= alwaysFromOne)) || l.from[a] >= maxFromOne || (stranger && l.strangers >= maxStrangers) {
		return false
	}
	if stranger {
		l.strangers++
	}
	l.all++
	l.from[a]++
	return true
}

func (l *limitListener) giveBack(a netip.Addr, stranger bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stranger {
		l.strangers--
	}
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
