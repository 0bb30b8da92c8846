//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
)

// The methods of the bench's gRPC service.
const (
	grpcService = "bench.Bench"
	grpcUnary   = "/" + grpcService + "/Unary"
	grpcStream  = "/" + grpcService + "/Stream"
)

// bytesCodec sends messages as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "bench" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("marshal %T: not bytes", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*message)}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	message, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("unmarshal %T: not bytes", v)
	}
	*message = data.Materialize()
	return nil
}

// grpcAnswerer does what a message asks for, whose text begins with a query and a
// space.
type grpcAnswerer struct{ answerer }

func serveGRPC(ctx context.Context, l net.Listener, secure *tls.Config, note noter) (stop func() error) {
	options := []grpc.ServerOption{grpc.ForceServerCodecV2(bytesCodec{}), grpc.WaitForHandlers(true)}
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	s := grpc.NewServer(options...)
	a := &grpcAnswerer{answerer{ctx, note}}
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: grpcService,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Unary", Handler: a.unary}},
		Streams:     []grpc.StreamDesc{{StreamName: "Stream", Handler: a.stream, ServerStreams: true}},
	}, a)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	return func() error {
		s.Stop()
		if err := <-done; !errors.Is(err, grpc.ErrServerStopped) {
			return err
		}
		return nil
	}
}

func (a *grpcAnswerer) asked(message []byte) (id uint64, does ask, err error) {
	var text string
	if _, err := fmt.Sscan(string(message), &text); err != nil {
		return 0, ask{}, err
	}
	q, err := url.ParseQuery(text)
	if err != nil {
		return 0, ask{}, err
	}
	id, does = asked(q)
	a.note(id, began, time.Now())
	return id, does, nil
}

//nolint:revive // the order is gRPC's
func (a *grpcAnswerer) unary(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var message []byte
	if err := read(&message); err != nil {
		return nil, err
	}
	id, does, err := a.asked(message)
	if err != nil {
		return nil, err
	}
	a.wait(does.work)
	answer := make([]byte, does.size)
	a.note(id, last, time.Now())
	return &answer, nil
}

func (a *grpcAnswerer) stream(_ any, stream grpc.ServerStream) error {
	var message []byte
	if err := stream.RecvMsg(&message); err != nil {
		return err
	}
	id, does, err := a.asked(message)
	if err != nil {
		return err
	}
	part := make([]byte, does.size)
	for i := range does.parts {
		if i > 0 {
			a.wait(does.pause)
			a.note(id, more, time.Now())
		}
		if i == does.parts-1 {
			a.note(id, last, time.Now())
		}
		if err := stream.SendMsg(&part); err != nil {
			return err
		}
	}
	return nil
}
