package traffic

import (
	"context"
	"fmt"
	"net/http"

	"github.com/coder/websocket"
)

type webSocketSession struct{ address string }

func (webSocketSession) close() {}

func (s webSocketSession) transfer(ctx context.Context, t Transfer, alive func()) (int64, error) {
	h := newHTTPSession(s.address, http1, false).(httpSession)
	//nolint:bodyclose // the library has closed it, as it documents
	conn, _, err := websocket.Dial(ctx, "ws://"+s.address+"/websocket?"+t.query(), &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: h.transport},
	})
	if err != nil {
		return 0, fmt.Errorf("open WebSocket: %w", err)
	}
	defer func() { _ = conn.CloseNow() }() // closed already when all went well
	conn.SetReadLimit(-1)
	// one message for each part; NetConn joins them, and ends with the closing handshake
	return receive(reader{websocket.NetConn(ctx, conn, websocket.MessageBinary), alive}, t)
}

// serveWebSocket ends with the context: net/http forgets a connection that it has handed over.
func serveWebSocket(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	t, err := parseTransfer(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseNow() })
	defer stop()
	ctx = conn.CloseRead(ctx)
	if send(ctx, websocket.NetConn(ctx, conn, websocket.MessageBinary), t, func() error { return nil }) == nil {
		_ = conn.Close(websocket.StatusNormalClosure, "")
	}
}
