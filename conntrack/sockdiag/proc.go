package sockdiag

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
)

// procNet is where the network namespace of the calling thread tells of itself.
// /proc/self/net would be that of the process's first thread.
const procNet = "/proc/thread-self/net/"

// procLine bounds a line; the kernel's have 150 to 180 bytes.
const procLine = 4 << 10

// checkEvery is after how many lines of a long list ctx is looked at.
const checkEvery = 256

var errProcLine = errors.New("line is not one of a socket")

// dumpProc is a dumpFunc by /proc/net/tcp and tcp6, for where netlink is barred. It
// knows no traffic. The kernel prints these some sockets at a time, so that one which
// lives on can be missed, and one can be there twice.
func dumpProc(ctx context.Context, _ bool, add func(answer)) error {
	for _, family := range []uint8{familyIPv4, familyIPv6} {
		if err := dumpProcOf(ctx, family, add); err != nil {
			return err
		}
	}
	return nil
}

func dumpProcOf(ctx context.Context, family uint8, add func(answer)) error {
	name := procNet + "tcp"
	if family == familyIPv6 {
		name += "6"
	}
	f, err := os.Open(name)
	switch {
	case family == familyIPv6 && errors.Is(err, fs.ErrNotExist):
		return nil // a kernel without IPv6
	case err != nil:
		return err
	}
	defer f.Close() // read only: nothing is lost
	return readProc(ctx, f, family, add)
}

// readProc reads such a file.
func readProc(ctx context.Context, r io.Reader, family uint8, add func(answer)) error {
	lines := bufio.NewReaderSize(r, readSize)
	type pair struct{ local, peer netip.AddrPort }
	had := make(map[pair]struct{})
	for n := 0; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case err != nil || len(line) > procLine:
			return fmt.Errorf("line %d: %w", n+1, errors.Join(err, errProcLine))
		case n == 0:
			continue // the columns' heads
		}
		s, err := decodeProc(line, family)
		if err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
		if !slices.Contains(states, s.State) {
			continue
		}
		if s.State != Listen {
			p := pair{s.Local, s.Peer}
			if _, twice := had[p]; twice {
				continue
			}
			had[p] = struct{}{}
		}
		add(answer{Socket: s, asked: true})
	}
}

// Places among the fields of a line.
const (
	procLocal = 1 + iota
	procPeer
	procState
	procQueues
	procInode  = 9
	procFields = 10
)

// decodeProc reads one line. It keeps nothing of it.
func decodeProc(line []byte, family uint8) (Socket, error) {
	var fields [procFields][]byte
	n := 0
	for field := range bytes.FieldsSeq(line) {
		if n == len(fields) {
			break
		}
		fields[n] = field
		n++
	}
	if n < len(fields) {
		return Socket{}, fmt.Errorf("%d fields: %w", n, errProcLine)
	}
	var s Socket
	var errs [6]error
	s.Local, errs[0] = procAddrPort(fields[procLocal], family)
	s.Peer, errs[1] = procAddrPort(fields[procPeer], family)
	send, receive, _ := bytes.Cut(fields[procQueues], []byte(":"))
	var state, inode uint64
	state, errs[2] = strconv.ParseUint(string(fields[procState]), 16, 8)
	s.SendQueue, errs[3] = procHex(send)
	s.RecvQueue, errs[4] = procHex(receive)
	inode, errs[5] = strconv.ParseUint(string(fields[procInode]), 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return Socket{}, fmt.Errorf("%w: %w", errProcLine, err)
	}
	s.State, s.Inode = State(state), uint32(inode)
	return s, nil
}

func procHex(b []byte) (uint32, error) {
	n, err := strconv.ParseUint(string(b), 16, 32)
	return uint32(n), err
}

// procAddrPort reads an address and a port. The address is in words of 32 bits, each
// printed as a number of the machine.
func procAddrPort(b []byte, family uint8) (netip.AddrPort, error) {
	const word = 4
	address, port, _ := bytes.Cut(b, []byte(":"))
	var raw [16]byte
	size := 4
	if family == familyIPv6 {
		size = 16
	}
	if len(address) != hex.EncodedLen(size) {
		return netip.AddrPort{}, fmt.Errorf("address of %d digits", len(address))
	}
	if _, err := hex.Decode(raw[:], address); err != nil {
		return netip.AddrPort{}, err
	}
	for at := 0; at < size; at += word {
		binary.NativeEndian.PutUint32(raw[at:], binary.BigEndian.Uint32(raw[at:]))
	}
	a, err := decodeAddr(family, raw[:])
	if err != nil {
		return netip.AddrPort{}, err
	}
	n, err := strconv.ParseUint(string(port), 16, 16)
	return netip.AddrPortFrom(a, uint16(n)), err
}
