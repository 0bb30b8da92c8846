package traffic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
)

// Ports of a Server; 0 is one that the system chooses.
type Ports struct {
	HTTP int // http, keepalive, http2, websocket; /ready for probes
	GRPC int
	TCP  int // tcp, halfclose
	UDP  int
}

// DefaultPorts are those of the program.
var DefaultPorts = Ports{HTTP: 8080, GRPC: 9090, TCP: 7000, UDP: 7001}

// Server serves every protocol that a Client speaks.
type Server struct {
	Ports Ports // those that it listens on

	web  *http.Server
	rpc  *grpc.Server
	tcp  net.Listener
	udp  net.PacketConn
	done context.Context // of TCP and WebSocket connections
	end  context.CancelFunc

	served      served
	quiesced    quiesced
	listeners   sync.WaitGroup
	accepting   sync.WaitGroup // TCP connections
	connections sync.WaitGroup // the same, accepted
}

// Listen opens the ports on every address of this machine or pod and serves until Close or Shutdown is called.
func Listen(p Ports) (*Server, error) {
	s := &Server{}
	s.rpc = grpc.NewServer(grpc.StreamInterceptor(s.countStream))
	s.done, s.end = context.WithCancel(context.Background())
	web, err := listenTCP(p.HTTP, &s.Ports.HTTP)
	if err != nil {
		return nil, err
	}
	rpc, err := listenTCP(p.GRPC, &s.Ports.GRPC)
	if err != nil {
		web.Close()
		return nil, err
	}
	if s.tcp, err = listenTCP(p.TCP, &s.Ports.TCP); err != nil {
		web.Close()
		rpc.Close()
		return nil, err
	}
	if s.udp, err = net.ListenPacket("udp", fmt.Sprintf(":%d", p.UDP)); err != nil {
		web.Close()
		rpc.Close()
		s.tcp.Close()
		return nil, fmt.Errorf("listen: %w", err)
	}
	s.Ports.UDP = s.udp.LocalAddr().(*net.UDPAddr).Port

	s.web = &http.Server{Handler: s.handler(), Protocols: new(http.Protocols)}
	s.web.Protocols.SetHTTP1(true)
	s.web.Protocols.SetUnencryptedHTTP2(true)
	testpb.RegisterTestServiceServer(s.rpc, grpcService{})
	s.listeners.Go(func() { _ = s.web.Serve(web) }) // ends with the server
	s.listeners.Go(func() { _ = s.rpc.Serve(rpc) })
	s.accepting.Go(s.acceptTCP)
	s.listeners.Go(func() { serveUDP(s.udp) })
	return s, nil
}

func listenTCP(port int, actual *int) (net.Listener, error) {
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	*actual = l.Addr().(*net.TCPAddr).Port
	return l, nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST "+QuiescePath, func(http.ResponseWriter, *http.Request) { s.Quiesce() })
	mux.HandleFunc(pollPath, func(w http.ResponseWriter, r *http.Request) {
		defer s.served.begin(lasts(r))()
		servePoll(&closing{w, &s.quiesced}, r)
	})
	mux.HandleFunc(downloadPath, func(w http.ResponseWriter, r *http.Request) {
		defer s.served.begin(lasts(r))()
		serveDownload(&closing{w, &s.quiesced}, r)
	})
	mux.HandleFunc("/websocket", func(w http.ResponseWriter, r *http.Request) { serveWebSocket(s.done, w, r) })
	return mux
}

func (s *Server) acceptTCP() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return // closed
		}
		s.connections.Go(func() { serveTCP(s.done, conn) })
	}
}

// Shutdown takes no new connection and blocks until those that are open have ended, or the context has: what a well
// written server does at SIGTERM. WebSocket connections are not waited for, as net/http documents.
func (s *Server) Shutdown(ctx context.Context) error {
	s.tcp.Close()
	s.accepting.Wait()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.rpc.GracefulStop()
		s.connections.Wait()
	}()
	err := s.web.Shutdown(ctx)
	select {
	case <-ended:
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	s.Close()
	<-ended
	return err
}

// Close ends every connection at once and blocks until nothing of the server runs.
func (s *Server) Close() {
	s.end()
	s.quiesced.stop()
	s.tcp.Close()
	s.udp.Close()
	s.web.Close()
	s.rpc.Stop()
	s.accepting.Wait()
	s.connections.Wait()
	s.listeners.Wait()
	s.quiesced.Wait()
}
