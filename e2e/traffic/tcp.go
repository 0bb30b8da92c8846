package traffic

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"
)

// A TCP client sends one line: what to do, and a transfer's query. The server answers with the payload and closes.
const (
	verbDownload  = "download"
	verbHalfClose = "halfclose" // the server sends only after the client's FIN
	verbQuery     = "query"     // the server does not close, and takes another line
)

type tcpSession struct {
	address string
	half    bool
}

func (tcpSession) close() {}

func (s tcpSession) transfer(ctx context.Context, t Transfer, alive func()) (int64, error) {
	conn, closeConn, err := dial(ctx, "tcp", s.address)
	if err != nil {
		return 0, err
	}
	defer closeConn()
	verb := verbDownload
	if s.half {
		verb = verbHalfClose
	}
	if _, err := fmt.Fprintf(conn, "%s %s\n", verb, t.query()); err != nil {
		return 0, fmt.Errorf("ask for transfer: %w", err)
	}
	if s.half {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return 0, fmt.Errorf("close half: %w", err)
		}
	}
	return receive(reader{conn, alive}, t)
}

// poolSession keeps its connection.
type poolSession struct {
	address string
	conn    net.Conn
}

func (s *poolSession) close() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
}

func (s *poolSession) transfer(ctx context.Context, t Transfer, alive func()) (int64, error) {
	if s.conn == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
		if err != nil {
			return 0, dialError{err}
		}
		s.conn = conn
	}
	conn := s.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := fmt.Fprintf(conn, "%s %s\n", verbQuery, t.query())
	n := int64(0)
	if err == nil {
		n, err = receive(io.LimitReader(reader{conn, alive}, t.Bytes), t)
	}
	if err != nil {
		s.close()
		return n, fmt.Errorf("query: %w", err)
	}
	return n, nil
}

// serveTCP answers one connection. A client that goes away ends it with an error of the write.
func serveTCP(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		verb, query, _ := strings.Cut(strings.TrimSpace(line), " ")
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		t, err := parseTransfer(values)
		if err != nil {
			return
		}
		if verb == verbHalfClose {
			if _, err := io.Copy(io.Discard, in); err != nil {
				return
			}
		}
		if err := send(ctx, conn, t, func() error { return nil }); err != nil || verb != verbQuery {
			return
		}
	}
}
