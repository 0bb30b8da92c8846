package traffic

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

const (
	datagramEvery = 100 * time.Millisecond
	datagramBytes = 512
	echoTimeout   = 3 * time.Second // a datagram is sent again three times within it
)

type udpSession struct{ address string }

func (udpSession) close() {}

// transfer sends numbered datagrams from one port for the transfer's time; each has to come back as it was sent. What
// the network lost is sent again, as a protocol on top of UDP would.
func (s udpSession) transfer(ctx context.Context, t Transfer, alive func()) (int64, error) {
	conn, closeConn, err := dial(ctx, "udp", s.address)
	if err != nil {
		return 0, err
	}
	defer closeConn()
	tick := time.NewTicker(datagramEvery)
	defer tick.Stop()
	sent := make([]byte, datagramBytes)
	if _, err := payload(datagramBytes).Read(sent); err != nil {
		return 0, fmt.Errorf("make datagram: %w", err)
	}
	var total int64
	for number := range max(1, uint64(t.Duration/datagramEvery)) {
		binary.BigEndian.PutUint64(sent, number)
		if err := exchange(conn, sent); err != nil {
			if number == 0 {
				return total, dialError{err} // nobody is there
			}
			return total, fmt.Errorf("exchange datagram %d: %w", number, err)
		}
		alive()
		total += datagramBytes
		select {
		case <-ctx.Done():
			return total, context.Cause(ctx)
		case <-tick.C:
		}
	}
	return total, nil
}

func exchange(conn net.Conn, sent []byte) error {
	const tries = 4
	got := make([]byte, datagramBytes+1)
	var err error
	for range tries {
		if _, err = conn.Write(sent); err != nil {
			return err
		}
		if err = conn.SetReadDeadline(time.Now().Add(echoTimeout / tries)); err != nil {
			return err
		}
		var n int
		for n, err = conn.Read(got); err == nil; n, err = conn.Read(got) {
			if bytes.Equal(got[:n], sent) {
				return nil
			}
		} // an echo that comes late is of an earlier try
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return fmt.Errorf("no echo within %s: %w", echoTimeout, err)
}

// serveUDP echoes until the socket is closed.
func serveUDP(conn net.PacketConn) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo(buf[:n], from) // the client sends again
	}
}
