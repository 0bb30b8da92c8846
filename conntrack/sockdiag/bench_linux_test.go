package sockdiag

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// crowd is a namespace with so many sockets in it.
func crowd(b *testing.B, sockets int) *netlab.Namespace {
	b.Helper()
	ns, err := netlab.New()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = ns.Close() })
	l, err := ns.Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	var open []io.Closer
	b.Cleanup(func() {
		for _, c := range open {
			_ = c.Close()
		}
	})
	err = ns.Do(func() error {
		var d net.Dialer
		for range sockets / 2 {
			c, err := d.DialContext(b.Context(), "tcp", l.Addr().String())
			if err != nil {
				return err
			}
			open = append(open, c)
			s, err := l.Accept()
			if err != nil {
				return err
			}
			open = append(open, s)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return ns
}

// threadTime is what the calling thread has spent of a processor.
func threadTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Error(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// What one look at ten thousand sockets costs, in each way.
func BenchmarkTake(b *testing.B) {
	const sockets = 10_000
	ns := crowd(b, sockets)
	proc := &ways{diag: kernel.diag, proc: dumpProc, own: ownAddresses}
	for _, way := range []struct {
		name string
		take func(context.Context) (Look, error)
	}{
		{"sockets", Take},
		{"with traffic", TakeTraffic},
		{"by " + ProcNet.String(), func(ctx context.Context) (Look, error) {
			return take(ctx, proc.proc, false, proc.own, 0)
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			err := ns.Do(func() error {
				began := threadTime(b)
				defer func() {
					// On a machine that does something else besides, this is what it costs.
					b.ReportMetric(float64((threadTime(b)-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
				}()
				for b.Loop() {
					look, err := way.take(b.Context())
					if err != nil {
						return err
					}
					if len(look.Sockets) != sockets {
						b.Errorf("%d sockets, want %d", len(look.Sockets), sockets)
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
