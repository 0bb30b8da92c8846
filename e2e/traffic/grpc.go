package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// connectTimeout is gRPC's own default.
const connectTimeout = 20 * time.Second

// grpcSession streams through gRPC's own interoperability service, which has a message for just that.
type grpcSession struct {
	address string
	conn    *grpc.ClientConn
	dialed  atomic.Bool // a connection was made in this transfer or before
}

func (s *grpcSession) close() {
	if s.conn != nil {
		s.conn.Close()
	}
}

func (s *grpcSession) connect() error {
	if s.conn != nil {
		return nil
	}
	conn, err := grpc.NewClient("passthrough:///"+s.address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// Without it the calls of a second and more would fail for one connection that was refused.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: connectEvery, Multiplier: 1, MaxDelay: connectEvery},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			s.dialed.Store(err == nil)
			return conn, err
		}))
	if err != nil {
		return fmt.Errorf("make gRPC client: %w", err)
	}
	s.conn = conn
	return nil
}

func (s *grpcSession) transfer(ctx context.Context, t Transfer, alive func()) (int64, error) {
	if err := s.connect(); err != nil {
		return 0, err
	}
	stream, err := testpb.NewTestServiceClient(s.conn).StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{
		ResponseParameters: []*testpb.ResponseParameters{{
			Size:       int32(t.Bytes),
			IntervalUs: int32(t.Duration.Microseconds()),
		}},
	})
	if err == nil {
		var n int64
		n, err = receive(reader{&messageReader{stream: stream}, alive}, t)
		if err == nil || n > 0 {
			return n, err
		}
	}
	// A call that was told so may have been overtaken by a connection that was made.
	if !s.dialed.Load() || strings.Contains(err.Error(), "while dialing") {
		return 0, dialError{err}
	}
	return 0, fmt.Errorf("call gRPC stream: %w", err)
}

// messageReader joins the messages of a stream.
type messageReader struct {
	stream grpc.ServerStreamingClient[testpb.StreamingOutputCallResponse]
	left   []byte
}

func (r *messageReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		message, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF // the server's status was OK
		}
		if err != nil {
			return 0, err
		}
		r.left = message.GetPayload().GetBody()
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// grpcService sends the whole transfer for each of the parameters that it is asked for: size is all its bytes and
// interval all its time.
type grpcService struct {
	testpb.UnimplementedTestServiceServer
}

// countStream counts each call as a transfer.
func (s *Server) countStream(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	counted := &countedStream{ServerStream: stream, served: &s.served}
	defer func() {
		if counted.end != nil {
			counted.end()
		}
	}()
	return handle(service, counted)
}

// countedStream is one call, which begins with what it asks for.
type countedStream struct {
	grpc.ServerStream
	served *served
	end    func()
}

func (c *countedStream) RecvMsg(m any) error {
	err := c.ServerStream.RecvMsg(m)
	if r, ok := m.(*testpb.StreamingOutputCallRequest); ok && err == nil && c.end == nil {
		c.end = c.served.begin(len(r.GetResponseParameters()) > 0 && r.GetResponseParameters()[0].GetIntervalUs() > 0)
	}
	return err
}

func (grpcService) StreamingOutputCall(r *testpb.StreamingOutputCallRequest,
	stream grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]) error {
	for _, p := range r.GetResponseParameters() {
		t := Transfer{Bytes: int64(p.GetSize()), Duration: time.Duration(p.GetIntervalUs()) * time.Microsecond}
		if err := send(stream.Context(), messageWriter{stream}, t, func() error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// messageWriter sends each write as a message.
type messageWriter struct {
	stream grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]
}

func (w messageWriter) Write(p []byte) (int, error) {
	body := append([]byte(nil), p...)
	err := w.stream.Send(&testpb.StreamingOutputCallResponse{Payload: &testpb.Payload{Body: body}})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}
