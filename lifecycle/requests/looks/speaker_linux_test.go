package looks

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/conndrain/conndrain/conntrack/netlab"
)

// Flags of a segment, and where its fields are.
const (
	flagSYN = 0x02
	flagPSH = 0x08
	flagACK = 0x10

	ipSize, tcpSize = 20, 20
)

// speaker is a client that speaks TCP by itself, so that it can say what no kernel
// would. It is for one goroutine.
type speaker struct {
	t        *testing.T
	out, in  int // files
	from, to netip.AddrPort
	// next is the number of the octet that comes next, heard that of the next one of
	// the server.
	next, heard uint32
	// said are the segments with data that were sent, answered the octets of the server
	// that have come in order.
	said     uint32
	answered int
	// deaf keeps it from acknowledging.
	deaf bool
}

// newSpeaker makes a client inside of n, whose own kernel hears nothing of what comes
// for it, and would refuse it otherwise. Both addresses are of IPv4.
func newSpeaker(t *testing.T, n *netlab.Namespace, from, to netip.AddrPort) *speaker {
	t.Helper()
	s := &speaker{t: t, from: from, to: to, next: 1_000_000}
	if err := n.Drop(from.Port()); err != nil {
		t.Fatal(err)
	}
	err := n.Do(func() (err error) {
		if s.out, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return err
		}
		const all = unix.ETH_P_IP<<8&0xff00 | unix.ETH_P_IP>>8 // in the network's order
		s.in, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Close(s.out), unix.Close(s.in)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// connect shakes hands. It blocks until the server has answered.
func (s *speaker) connect() {
	s.t.Helper()
	limit := time.Now().Add(patience)
	for s.heard == 0 {
		if time.Now().After(limit) {
			s.t.Fatal("nobody has answered the SYN")
		}
		s.segment(flagSYN, s.next, nil)
		poll := []unix.PollFd{{Fd: int32(s.in), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, 1000); err != nil && !errors.Is(err, unix.EINTR) {
			s.t.Fatal(err)
		}
		s.hear()
	}
	s.next++
	s.acknowledge()
}

// say sends so many octets in one segment.
func (s *speaker) say(size int) {
	s.t.Helper()
	s.ahead(0, size)
	s.next += uint32(size)
}

// ahead sends size octets that come after so many others, which it does not send.
func (s *speaker) ahead(after, size int) {
	s.t.Helper()
	s.segment(flagACK|flagPSH, s.next+uint32(after), make([]byte, size))
}

// probe asks whether the server is there, with an octet that it has had before.
func (s *speaker) probe() {
	s.t.Helper()
	s.segment(flagACK, s.next-1, make([]byte, 1))
}

func (s *speaker) acknowledge() {
	s.t.Helper()
	s.segment(flagACK, s.next, nil)
}

// hear takes what has come and acknowledges it. It does not block.
func (s *speaker) hear() {
	s.t.Helper()
	b := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(s.in, b, 0)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			s.t.Fatal(err)
		}
		if n >= ipSize+tcpSize {
			s.take(b[:n])
		}
	}
}

// take takes one packet.
func (s *speaker) take(b []byte) {
	s.t.Helper()
	size := min(len(b), int(binary.BigEndian.Uint16(b[2:])))
	header := int(b[0]&0xf) * 4
	if b[9] != unix.IPPROTO_TCP || size < header+tcpSize {
		return
	}
	tcp := b[header:size]
	if binary.BigEndian.Uint16(tcp) != s.to.Port() || binary.BigEndian.Uint16(tcp[2:]) != s.from.Port() {
		return
	}
	sequence, length := binary.BigEndian.Uint32(tcp[4:]), len(tcp)-int(tcp[12]>>4)*4
	switch {
	case tcp[13]&flagSYN != 0:
		s.heard = sequence + 1
	case length > 0 && !s.deaf:
		if sequence == s.heard {
			s.heard += uint32(length)
			s.answered += length
		}
		s.acknowledge()
	}
}

// segment sends one.
func (s *speaker) segment(flags byte, sequence uint32, data []byte) {
	s.t.Helper()
	b := make([]byte, ipSize+tcpSize, ipSize+tcpSize+len(data))
	b = append(b, data...)
	from, to := s.from.Addr().As4(), s.to.Addr().As4()
	b[0], b[8], b[9] = 0x45, 64, unix.IPPROTO_TCP // the kernel fills in the rest
	copy(b[12:], from[:])
	copy(b[16:], to[:])
	tcp := b[ipSize:]
	binary.BigEndian.PutUint16(tcp, s.from.Port())
	binary.BigEndian.PutUint16(tcp[2:], s.to.Port())
	binary.BigEndian.PutUint32(tcp[4:], sequence)
	if flags&flagACK != 0 {
		binary.BigEndian.PutUint32(tcp[8:], s.heard)
	}
	tcp[12], tcp[13] = tcpSize/4<<4, flags
	binary.BigEndian.PutUint16(tcp[14:], 0xffff) // the window
	binary.BigEndian.PutUint16(tcp[16:], checksum(b[12:20], tcp))
	if err := unix.Sendto(s.out, b, 0, &unix.SockaddrInet4{Addr: to}); err != nil {
		s.t.Fatal(err)
	}
	if len(data) > 0 {
		s.said++
	}
}

// checksum is that of a segment between two addresses.
func checksum(addresses, segment []byte) uint16 {
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(segment))
	for _, part := range [][]byte{addresses, segment} {
		for i, v := range part {
			sum += uint32(v) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
