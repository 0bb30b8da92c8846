package sockdiag

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// told is a message of the kernel's.
func told(kind uint16, flags netlink.HeaderFlags, payload []byte) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(payload))
	binary.NativeEndian.PutUint32(b, uint32(unix.NLMSG_HDRLEN+len(payload)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], uint16(flags))
	return append(b, payload...)
}

// number is the payload of a message that says how it went.
func number(e unix.Errno) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(-int32(e)))
}

func TestDatagram(t *testing.T) {
	t.Parallel()
	socket := make([]byte, messageSize)
	socket[familyAt] = familyIPv4
	one := told(unix.SOCK_DIAG_BY_FAMILY, netlink.Multi, socket)
	end := told(unix.NLMSG_DONE, netlink.Multi, number(0))
	cut := append([]byte{}, one...)
	binary.NativeEndian.PutUint32(cut, uint32(len(cut)+1))
	small := append([]byte{}, one...)
	binary.NativeEndian.PutUint32(small, unix.NLMSG_HDRLEN-1)
	join := func(all ...[]byte) (b []byte) {
		for _, m := range all {
			b = append(b, m...)
		}
		return b
	}
	for _, tc := range []struct {
		name  string
		b     []byte
		added int
		done  bool
		is    error
		says  string
	}{
		{name: "two and no end", b: join(one, one), added: 2},
		{name: "two and the end", b: join(one, one, end), added: 2, done: true},
		{name: "only the end", b: end, done: true},
		{name: "what follows the end", b: join(end, one), done: true},
		{name: "a refusal", b: told(unix.NLMSG_ERROR, 0, number(unix.EPERM)), done: true, is: unix.EPERM},
		{name: "an end that failed", b: told(unix.NLMSG_DONE, netlink.Multi, number(unix.ENOMEM)), done: true, is: unix.ENOMEM},
		{name: "no tcp_diag", b: told(unix.NLMSG_ERROR, 0, number(unix.ENOENT)), done: true, is: errors.ErrUnsupported, says: "modprobe tcp_diag"},
		{name: "interrupted", b: join(one, told(unix.SOCK_DIAG_BY_FAMILY, netlink.Multi|netlink.DumpInterrupted, socket)), added: 1, is: errInterrupted},
		{name: "interrupted at its end", b: told(unix.NLMSG_DONE, netlink.Multi|netlink.DumpInterrupted, number(0)), is: errInterrupted},
		{name: "another type", b: told(99, netlink.Multi, socket), says: "unexpected answer of type 99"},
		{name: "not part of a list", b: told(unix.SOCK_DIAG_BY_FAMILY, 0, socket), says: "unexpected answer of type 20"},
		{name: "nothing", is: errShort},
		{name: "a part of a header", b: one[:8], is: errShort},
		{name: "bytes after a message", b: join(one, one[:8]), added: 1, is: errShort},
		{name: "longer than there is", b: cut, is: errShort},
		{name: "shorter than a header", b: small, is: errShort},
		{name: "a socket that is cut off", b: told(unix.SOCK_DIAG_BY_FAMILY, netlink.Multi, socket[:messageSize-1]), is: errShort},
		{name: "an end without a number", b: told(unix.NLMSG_DONE, netlink.Multi, nil), done: true, is: errShort},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			added := 0
			done, err := datagram(tc.b, unix.SOCK_DIAG_BY_FAMILY, true, func(answer) { added++ })
			if added != tc.added || done != tc.done {
				t.Errorf("%d sockets, done %t, want %d, %t", added, done, tc.added, tc.done)
			}
			switch {
			case tc.is == nil && tc.says == "" && err != nil, tc.is != nil && !errors.Is(err, tc.is):
				t.Errorf("error %v, want %v", err, tc.is)
			case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
				t.Errorf("error %v does not say %q", err, tc.says)
			}
		})
	}
}

func FuzzDatagram(f *testing.F) {
	socket := make([]byte, messageSize)
	socket[familyAt] = familyIPv6
	f.Add(told(unix.SOCK_DIAG_BY_FAMILY, netlink.Multi, socket))
	f.Add(told(unix.NLMSG_DONE, netlink.Multi, number(0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		added := 0
		_, _ = datagram(b, unix.SOCK_DIAG_BY_FAMILY, true, func(answer) { added++ })
		if most := len(b) / (unix.NLMSG_HDRLEN + messageSize); added > most {
			t.Errorf("%d sockets in %d bytes", added, len(b))
		}
	})
}

// A kernel that refuses the older question is asked for each family, and then at once.
func TestDumpWithoutTheOlderQuestion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name           string
		older, present error
		some           bool // of the older question, before its error
		want           error
		kinds          []netlink.HeaderType // of two dumps
	}{
		{name: "it knows both", kinds: []netlink.HeaderType{kindOlder, kindOlder}},
		{name: "it refuses the older", older: unix.EINVAL, kinds: []netlink.HeaderType{kindOlder, 20, 20, 20, 20}},
		{name: "it refuses both", older: unix.EPERM, present: unix.EPERM, want: unix.EPERM, kinds: []netlink.HeaderType{kindOlder, 20, kindOlder, 20}},
		{name: "the older breaks off", older: unix.EINVAL, some: true, want: unix.EINVAL, kinds: []netlink.HeaderType{kindOlder, kindOlder}},
		{name: "the older is interrupted", older: errInterrupted, want: errInterrupted, kinds: []netlink.HeaderType{kindOlder, kindOlder}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var kinds []netlink.HeaderType
			d := &dumper{ask: func(_ context.Context, kind netlink.HeaderType, _ []byte, _ bool, add func(answer)) error {
				kinds = append(kinds, kind)
				if kind != kindOlder {
					return tc.present
				}
				if tc.some {
					add(answer{})
				}
				return tc.older
			}}
			for range 2 {
				if err := d.dump(t.Context(), true, func(answer) {}); !errors.Is(err, tc.want) {
					t.Errorf("error %v, want %v", err, tc.want)
				}
			}
			if !slices.Equal(kinds, tc.kinds) {
				t.Errorf("asked %v, want %v", kinds, tc.kinds)
			}
		})
	}
}
