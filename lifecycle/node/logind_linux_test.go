package node

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

// bus is a system bus on which only logind is, as far as it is asked here.
type bus struct {
	t      *testing.T
	socket string
	// answer is the property; nil hangs after the greeting.
	answer any
	// mute never greets.
	mute bool
}

func (b *bus) start() {
	b.t.Helper()
	// A socket's path may not be longer than 107 bytes, which a test's own directory is.
	dir, err := os.MkdirTemp("", "bus")
	must(b.t, err)
	b.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b.socket = filepath.Join(dir, "socket")
	l, err := new(net.ListenConfig).Listen(b.t.Context(), "unix", b.socket)
	must(b.t, err)
	done := make(chan struct{})
	b.t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.serve(c)
			_ = c.Close()
		}
	}()
}

func (b *bus) serve(c net.Conn) {
	r := bufio.NewReader(c)
	for !b.mute {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch {
		case strings.Contains(line, "BEGIN"):
			b.messages(r, c)
			return
		case strings.Contains(line, "AUTH EXTERNAL"):
			_, _ = c.Write([]byte("OK 0123456789abcdef0123456789abcdef\r\n"))
		case strings.Contains(line, "AUTH"):
			_, _ = c.Write([]byte("REJECTED EXTERNAL\r\n"))
		case strings.Contains(line, "NEGOTIATE"):
			_, _ = c.Write([]byte("ERROR\r\n"))
		}
	}
	_, _ = r.ReadString(0) // until the caller goes away
}

func (b *bus) messages(r *bufio.Reader, c net.Conn) {
	for serial := uint32(1); ; serial++ {
		m, err := dbus.DecodeMessage(r)
		if err != nil {
			return
		}
		if m.Type != dbus.TypeMethodCall {
			continue
		}
		var body []any
		switch m.Headers[dbus.FieldMember].Value() {
		case "Hello":
			body = []any{":1.1"}
		case "Get":
			if b.answer == nil {
				continue
			}
			if m.Body[1] != "PreparingForShutdown" || m.Headers[dbus.FieldDestination].Value() != "org.freedesktop.login1" {
				b.t.Errorf("asked for %v of %v", m.Body, m.Headers[dbus.FieldDestination])
			}
			body = []any{dbus.MakeVariant(b.answer)}
		}
		reply := &dbus.Message{
			Type: dbus.TypeMethodReply,
			Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldReplySerial: dbus.MakeVariant(m.Serial()),
				dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(body...)),
			},
			Body: body,
		}
		if err := encode(reply, serial, c); err != nil {
			return
		}
	}
}

// encode writes a message with a serial number, which only a connection can set.
func encode(m *dbus.Message, serial uint32, c net.Conn) error {
	var b strings.Builder
	if err := m.EncodeTo(&b, binary.LittleEndian); err != nil {
		return err
	}
	raw := []byte(b.String())
	binary.LittleEndian.PutUint32(raw[8:], serial)
	_, err := c.Write(raw)
	return err
}

func TestPreparingForShutdown(t *testing.T) {
	for _, tc := range []struct {
		name string
		bus  *bus
		want bool
		err  bool
	}{
		{"yes", &bus{answer: true}, true, false},
		{"no", &bus{answer: false}, false, false},
		{"something else", &bus{answer: "soon"}, false, true},
		{"a logind that hangs", &bus{}, false, true},
		{"a bus that hangs", &bus{mute: true}, false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.bus.t = t
			tc.bus.start()
			ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
			defer stop()
			got, err := preparingForShutdown(ctx, tc.bus.socket)
			if got != tc.want || (err != nil) != tc.err {
				t.Errorf("%t, %v", got, err)
			}
		})
	}
	if _, err := preparingForShutdown(t.Context(), filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a socket that is not there answers")
	}
	if _, err := preparingForShutdown(t.Context(), ""); !errors.Is(err, errNoBus) {
		t.Errorf("without a bus: %v", err)
	}
}
