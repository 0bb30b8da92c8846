package traffic

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is for what takes a moment, on a machine that is much slower than ours.
const limit = time.Minute

func listen(t *testing.T) *Server {
	t.Helper()
	s, err := Listen(Ports{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func addressOf(p Ports, protocol string) string {
	port := p.HTTP
	switch protocol {
	case "grpc":
		port = p.GRPC
	case "tcp", "halfclose", "pool":
		port = p.TCP
	case "udp":
		port = p.UDP
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func run(t *testing.T, c Client) Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	report, err := c.Run(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestTransfersComplete(t *testing.T) {
	s := listen(t)
	for _, protocol := range Protocols() {
		t.Run(protocol, func(t *testing.T) {
			transfer := Transfer{Bytes: 300_001, Duration: 300 * time.Millisecond}
			got := run(t, Client{Protocol: protocol, Address: addressOf(s.Ports, protocol), Transfer: transfer,
				Count: 6, Concurrency: 2, Pause: time.Millisecond})
			bytes := 6 * transfer.Bytes
			if protocol == "udp" {
				bytes = 6 * 3 * datagramBytes // one each 100 ms
			}
			want := Report{Protocol: protocol, Started: 6, Completed: 6, Bytes: bytes}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
		})
	}
}

func TestServerThatDiesCutsTransfers(t *testing.T) {
	for _, protocol := range Protocols() {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s := listen(t)
			c := Client{Protocol: protocol, Address: addressOf(s.Ports, protocol),
				Transfer: Transfer{Bytes: 10 << 20, Duration: limit}, Count: 1}
			c.Defaults()
			session := &watched{session: protocols[protocol](c.Address), seen: make(chan struct{})}
			defer session.close()
			held := protocol == "longpoll" // not a byte before the end
			go func() {
				if held {
					begun(s)
				} else {
					<-session.seen
				}
				s.Close()
			}()
			n, err := c.one(t.Context(), session)
			if err == nil || errors.As(err, new(dialError)) || (n == 0) != held || n >= c.Transfer.Bytes {
				t.Errorf("transfer ended with %d bytes and %v, want a part of them and an error that is not of dialling", n, err)
			}
		})
	}
}

// begun blocks until the server has a transfer, but not for longer than the limit.
func begun(s *Server) {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for until := time.Now().Add(limit); s.Served().Open == 0 && time.Now().Before(until); {
		<-again.C
	}
}

// watched closes seen when a transfer's first bytes have come.
type watched struct {
	session
	seen chan struct{}
	once bool
}

func (w *watched) transfer(ctx context.Context, t Transfer, alive func()) (int64, error) {
	return w.session.transfer(ctx, t, func() {
		alive()
		if !w.once {
			w.once = true
			close(w.seen)
		}
	})
}

func TestNobodyListensIsRefused(t *testing.T) {
	s := listen(t)
	ports := s.Ports
	s.Close()
	for _, protocol := range Protocols() {
		t.Run(protocol, func(t *testing.T) {
			got := run(t, Client{Protocol: protocol, Address: addressOf(ports, protocol), Count: 2})
			want := Report{Protocol: protocol, Started: 2, Refused: 2}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Report{}, "Errors")); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			if len(got.Errors) == 0 {
				t.Error("report has no error")
			}
		})
	}
}

// A Service refuses for a moment after its first pod is ready.
func TestPatienceWaitsForTheServer(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.9.9:0") // of loopback, where nobody else looks for a port
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	forward := make(chan net.Listener, 1)
	late := time.AfterFunc(time.Second, func() {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
		}
		forward <- l
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		l := <-forward
		if l == nil {
			return
		}
		defer l.Close()
		for range 2 { // the look whether it is there, and the transfer
			c, err := l.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close()
		}
	}()
	got := run(t, Client{Protocol: "tcp", Address: address, Count: 1, Patience: limit})
	<-done
	if late.Stop() || got.Refused != 0 || got.Started != 1 {
		t.Errorf("report is %+v, want a transfer that was not refused", got)
	}
}

func TestStallIsCut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // nobody accepts: the kernel connects, and no byte comes
	got := run(t, Client{Protocol: "tcp", Address: l.Addr().String(), Transfer: Transfer{Bytes: 1}, Count: 1,
		Stall: 50 * time.Millisecond})
	if got.Cut != 1 || !strings.Contains(strings.Join(got.Errors, " "), "no byte for 50ms") {
		t.Errorf("report is %+v, want one transfer cut for its stall", got)
	}
}

func TestShutdownWaitsForTransfers(t *testing.T) {
	for _, protocol := range []string{"http", "http2", "grpc", "tcp", "halfclose"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s := listen(t)
			c := Client{Protocol: protocol, Address: addressOf(s.Ports, protocol),
				Transfer: Transfer{Bytes: 1 << 20, Duration: time.Second}, Count: 1}
			c.Defaults()
			session := &watched{session: protocols[protocol](c.Address), seen: make(chan struct{})}
			defer session.close()
			down := make(chan error, 1)
			go func() {
				<-session.seen
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				defer cancel()
				down <- s.Shutdown(ctx)
			}()
			if n, err := c.one(t.Context(), session); err != nil {
				t.Errorf("transfer ended with %d bytes: %v", n, err)
			}
			session.close()
			if err := <-down; err != nil {
				t.Errorf("shut down: %v", err)
			}
		})
	}
}

func TestStopStartsNoFurtherTransfer(t *testing.T) {
	s := listen(t)
	stop := make(chan struct{})
	c := Client{Protocol: "tcp", Address: addressOf(s.Ports, "tcp"),
		Transfer: Transfer{Bytes: 1000, Duration: 200 * time.Millisecond}}
	time.AfterFunc(300*time.Millisecond, func() { close(stop) })
	got, err := c.Run(t.Context(), stop)
	if err != nil {
		t.Fatal(err)
	}
	if got.Started == 0 || got.Started != got.Completed {
		t.Errorf("report is %+v, want every transfer that started completed", got)
	}
}

func TestReceiveTellsWhatIsWrong(t *testing.T) {
	const n = 1000
	good, err := io.ReadAll(payload(n))
	if err != nil {
		t.Fatal(err)
	}
	swapped := bytes.Clone(good)
	swapped[n/2], swapped[n/2+1] = swapped[n/2+1], swapped[n/2]
	for _, test := range []struct {
		name string
		in   []byte
		want error
	}{
		{"whole", good, nil},
		{"a byte short", good[:n-1], io.ErrUnexpectedEOF},
		{"empty", nil, io.ErrUnexpectedEOF},
		{"a byte more", append(bytes.Clone(good), 0), ErrCorrupt},
		{"two bytes swapped", swapped, ErrCorrupt},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := receive(bytes.NewReader(test.in), Transfer{Bytes: n})
			if !errors.Is(err, test.want) || got != int64(len(test.in)) {
				t.Errorf("receive is %d, %v; want %d, %v", got, err, len(test.in), test.want)
			}
		})
	}
}

func TestClientRefusesMistakes(t *testing.T) {
	_, err := Client{Protocol: "gopher", Address: "nowhere", Count: -1}.Run(t.Context(), nil)
	for _, want := range []string{`protocol "gopher": use one of grpc`, `address "nowhere": use host:port`, "negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q in it", err, want)
		}
	}
}

// After its next answer a kept connection ends, and no transfer suffers from it.
func TestQuiesceEndsKeptConnections(t *testing.T) {
	for protocol, version := range map[string]httpVersion{"keepalive": http1, "http2": http2} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			s := listen(t)
			session := newHTTPSession(addressOf(s.Ports, protocol), version, true)
			defer session.close()
			var kept atomic.Bool
			transfer := func() {
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { kept.Store(c.Reused) }})
				if _, err := session.transfer(ctx, Transfer{Bytes: 10}, func() {}); err != nil {
					t.Fatal(err)
				}
			}
			transfer()
			transfer()
			if !kept.Load() {
				t.Fatal("the connection was not kept before the server was told")
			}
			response, err := http.Post("http://"+addressOf(s.Ports, "http")+QuiescePath, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if response.Body.Close(); response.StatusCode != http.StatusOK {
				t.Fatalf("told to quiesce: status %s", response.Status)
			}
			transfer() // learns of it by the answer
			for until := time.Now().Add(limit); kept.Load(); transfer() {
				if time.Now().After(until) {
					t.Fatal("the connection is kept")
				}
			}
		})
	}
}

func TestQuiesceLetsCallsEnd(t *testing.T) {
	s := listen(t)
	session := protocols["grpc"](addressOf(s.Ports, "grpc"))
	defer session.close()
	begun := sync.OnceFunc(s.Quiesce)
	if n, err := session.transfer(t.Context(), Transfer{Bytes: 1 << 10, Duration: time.Second}, begun); err != nil || n != 1<<10 {
		t.Errorf("a call that was under way brought %d bytes, %v", n, err)
	}
	if _, err := session.transfer(t.Context(), Transfer{Bytes: 10}, func() {}); err == nil {
		t.Error("a call was taken afterwards")
	}
	if got := s.Served(); got.Open != 0 || got.StreamBegan.IsZero() || got.StreamEnded.Before(got.StreamBegan) {
		t.Errorf("served %+v, want one stream that has ended", got)
	}
}
