package sockdiag

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var errBroken = errors.New("broken")

// scripted answers each dump by the next error of its script; each one adds a socket
// first, as a dump does that breaks off.
func scripted(script ...error) (dumpFunc, *int) {
	calls := new(int)
	return func(_ context.Context, _ bool, add func(answer)) error {
		*calls++
		add(answer{Socket: Socket{State: Established, Inode: uint32(*calls)}})
		if *calls > len(script) {
			return nil
		}
		return script[*calls-1]
	}, calls
}

func noAddresses() ([]netip.Addr, error) { return nil, nil }

func TestTakeStartsAgainAndKeepsNothingOfABrokenDump(t *testing.T) {
	t.Parallel()
	dump, _ := scripted(errInterrupted, errInterrupted)
	l, err := take(t.Context(), dump, false, noAddresses, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []Socket{{State: Established, Inode: 3}}
	if diff := cmp.Diff(want, l.Sockets, byValue); diff != "" {
		t.Errorf("sockets (-want +got):\n%s", diff)
	}
	if l.At.IsZero() {
		t.Error("the look has no time")
	}
}

func TestTakeGivesUp(t *testing.T) {
	t.Parallel()
	endless := make([]error, 10*attempts)
	for i := range endless {
		endless[i] = errInterrupted
	}
	for _, tt := range []struct {
		name   string
		script []error
		want   error
		calls  int
	}{
		{name: "always interrupted", script: endless, want: errInterrupted, calls: attempts},
		{name: "another error", script: []error{errBroken}, want: errBroken, calls: 1},
		{name: "not supported", script: []error{errors.ErrUnsupported}, want: errors.ErrUnsupported, calls: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dump, calls := scripted(tt.script...)
			l, err := take(t.Context(), dump, false, noAddresses, 0)
			if !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if len(l.Sockets) > 0 || *calls != tt.calls {
				t.Errorf("%d sockets after %d dumps, want none after %d", len(l.Sockets), *calls, tt.calls)
			}
		})
	}
	t.Run("own addresses unknown", func(t *testing.T) {
		t.Parallel()
		dump, _ := scripted()
		l, err := take(t.Context(), dump, false, func() ([]netip.Addr, error) { return nil, errBroken }, 0)
		if !errors.Is(err, errBroken) || len(l.Sockets) > 0 {
			t.Errorf("%d sockets, error %v, want none and %v", len(l.Sockets), err, errBroken)
		}
	})
	t.Run("cancelled before", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBroken)
		dump, calls := scripted()
		if _, err := take(ctx, dump, false, noAddresses, 0); !errors.Is(err, errBroken) || *calls != 0 {
			t.Errorf("error %v after %d dumps, want %v after none", err, *calls, errBroken)
		}
	})
	t.Run("cancelled in the middle", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		dump := func(context.Context, bool, func(answer)) error {
			cancel(errBroken)
			return os.ErrDeadlineExceeded
		}
		if _, err := take(ctx, dump, false, noAddresses, 0); !errors.Is(err, errBroken) {
			t.Errorf("error %v, want %v", err, errBroken)
		}
	})
}

// Where netlink is refused, /proc is read, and the look says so; the refused way is
// left alone for a while. What else is wrong with netlink is an error.
func TestTakeInsteadOfNetlink(t *testing.T) {
	t.Parallel()
	proc := func(_ context.Context, _ bool, add func(answer)) error {
		add(answer{Socket: Socket{State: Established}, asked: true})
		return nil
	}
	own := netip.MustParseAddr("10.244.1.7")
	for _, tt := range []struct {
		name  string
		diag  error
		proc  dumpFunc
		own   error
		want  error // or the source below
		from  Source
		calls int // of netlink, for two looks
	}{
		{name: "netlink answers", proc: proc, from: SockDiag, calls: 2},
		{name: "no tcp_diag", diag: errors.ErrUnsupported, proc: proc, from: ProcNet, calls: 1},
		{name: "a filter of system calls", diag: os.ErrPermission, proc: proc, own: os.ErrPermission, from: ProcNet, calls: 1},
		{name: "broken", diag: errBroken, proc: proc, want: errBroken, calls: 2},
		{name: "neither", diag: os.ErrPermission, proc: func(context.Context, bool, func(answer)) error { return os.ErrNotExist }, want: errors.ErrUnsupported, calls: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			w := &ways{
				diag: func(_ context.Context, _ bool, add func(answer)) error {
					calls++
					add(answer{Socket: Socket{State: Established}})
					return tt.diag
				},
				proc:    tt.proc,
				own:     func() ([]netip.Addr, error) { return []netip.Addr{own}, tt.own },
				ownProc: func() ([]netip.Addr, error) { return []netip.Addr{own}, nil },
			}
			for range 2 {
				l, err := w.take(t.Context(), true)
				switch {
				case tt.want != nil:
					if !errors.Is(err, tt.want) || len(l.Sockets) > 0 {
						t.Errorf("%d sockets, error %v, want none and %v", len(l.Sockets), err, tt.want)
					}
				case err != nil || l.Source != tt.from || len(l.Sockets) != 1 || len(l.Own) != 1 || (l.Refusal == nil) != (tt.from == SockDiag):
					t.Errorf("%+v, error %v", l, err)
				}
			}
			if calls != tt.calls {
				t.Errorf("netlink was asked %d times, want %d", calls, tt.calls)
			}
		})
	}
}
