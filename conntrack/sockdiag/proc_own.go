package sockdiag

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
)

// ownFromProc are the addresses of this namespace where netlink, by which the
// standard library asks, is barred: IPv4's are routes to this host itself.
func ownFromProc() ([]netip.Addr, error) {
	own, err := readFile(procNet+"fib_trie", ownFromTrie)
	if err != nil {
		return nil, err
	}
	own6, err := readFile(procNet+"if_inet6", ownFromInet6)
	if errors.Is(err, fs.ErrNotExist) {
		return own, nil // a kernel without IPv6
	}
	return append(own, own6...), err
}

func readFile(name string, read func(io.Reader) ([]netip.Addr, error)) ([]netip.Addr, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // read only: nothing is lost
	return read(f)
}

// ownFromTrie reads routes: an address on one line, what kind of route leads to it
// on the next.
func ownFromTrie(r io.Reader) ([]netip.Addr, error) {
	var own []netip.Addr
	var address string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if leaf, ok := strings.CutPrefix(line, "|-- "); ok {
			address = leaf
			continue
		}
		if !strings.HasPrefix(line, "/32 host LOCAL") {
			continue
		}
		a, err := netip.ParseAddr(address)
		if err != nil {
			return nil, fmt.Errorf("read routes: %w", err)
		}
		own = append(own, a)
	}
	return own, lines.Err()
}

// ownFromInet6 reads interfaces' addresses, one on each line, as 32 digits.
func ownFromInet6(r io.Reader) ([]netip.Addr, error) {
	var own []netip.Addr
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		address, _, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		var raw [16]byte
		if len(address) != hex.EncodedLen(len(raw)) {
			return nil, fmt.Errorf("read addresses: %d digits", len(address))
		}
		if _, err := hex.Decode(raw[:], address); err != nil {
			return nil, fmt.Errorf("read addresses: %w", err)
		}
		own = append(own, netip.AddrFrom16(raw))
	}
	return own, lines.Err()
}
