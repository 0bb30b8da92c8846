package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
)

// maxFilterLen is the kernel's BPF_MAXINSNS.
const maxFilterLen = 4096

const (
	bpfAccept = 0xffffffff
	// attributesAt is where the attributes of an event begin in its datagram.
	attributesAt = nlmsgHeaderLen + nfgenmsgLen
)

// acceptAll lets every message pass (BPF_RET | BPF_K).
var acceptAll = []bpf.RawInstruction{{Op: 0x06, K: bpfAccept}}

// eventFilter returns a classic BPF program for the event socket that lets a
// message pass if the source of its original or of its reply tuple is one of the
// addresses. What it cannot read passes too, and so does everything where the
// program would be longer than the kernel allows: the reader matches again in
// any case. It must never be attached to a socket that dumps, where it would
// swallow the end of the dump.
func eventFilter(addrs []netip.Addr) ([]bpf.RawInstruction, error) {
	var prog []bpf.Instruction
	for _, tupleType := range []uint32{ctaTupleReply, ctaTupleOrig} {
		prog = append(prog, tupleSource(tupleType, addrs)...)
	}
	prog = append(prog, bpf.RetConstant{Val: 0})
	if len(prog) > maxFilterLen {
		return acceptAll, nil
	}
	raw, err := bpf.Assemble(prog)
	if err != nil {
		return nil, fmt.Errorf("assemble event filter: %w", err)
	}
	return raw, nil
}

// tupleSource accepts the message if the tuple's source address is in addrs, and
// falls through otherwise.
func tupleSource(tupleType uint32, addrs []netip.Addr) []bpf.Instruction {
	accept := bpf.RetConstant{Val: bpfAccept}
	acceptIfMissing := []bpf.Instruction{
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
		accept,
	}
	var v4, v6 []bpf.Instruction
	for _, a := range addrs {
		if a.Is4() {
			b := a.As4()
			v4 = append(v4,
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(b[:]), SkipTrue: 1},
				accept)
			continue
		}
		b := a.As16()
		for word := range 4 {
			// From the first word that differs, on to behind this address.
			v6 = append(v6,
				bpf.LoadIndirect{Off: uint32(nlaHeaderLen + 4*word), Size: 4},
				bpf.JumpIf{
					Cond:     bpf.JumpNotEqual,
					Val:      binary.BigEndian.Uint32(b[4*word:]),
					SkipTrue: uint8(2*(3-word) + 1),
				})
		}
		v6 = append(v6, accept)
	}

	prog := []bpf.Instruction{
		bpf.LoadConstant{Dst: bpf.RegA, Val: attributesAt},
		bpf.LoadConstant{Dst: bpf.RegX, Val: tupleType},
		bpf.LoadExtension{Num: bpf.ExtNetlinkAttr},
	}
	prog = append(prog, acceptIfMissing...)
	prog = append(prog,
		bpf.LoadConstant{Dst: bpf.RegX, Val: ctaTupleIP},
		bpf.LoadExtension{Num: bpf.ExtNetlinkAttrNested})
	prog = append(prog, acceptIfMissing...)
	prog = append(prog,
		bpf.StoreScratch{Src: bpf.RegA, N: 0},
		bpf.LoadConstant{Dst: bpf.RegX, Val: ctaIPv4Src},
		bpf.LoadExtension{Num: bpf.ExtNetlinkAttrNested})

	var ipv6 []bpf.Instruction
	ipv6 = append(ipv6,
		bpf.LoadScratch{Dst: bpf.RegA, N: 0},
		bpf.LoadConstant{Dst: bpf.RegX, Val: ctaIPv6Src},
		bpf.LoadExtension{Num: bpf.ExtNetlinkAttrNested})
	ipv6 = append(ipv6, acceptIfMissing...)
	ipv6 = append(ipv6, bpf.TAX{})
	ipv6 = append(ipv6, v6...)

	var ipv4 []bpf.Instruction
	ipv4 = append(ipv4, bpf.TAX{}, bpf.LoadIndirect{Off: nlaHeaderLen, Size: 4})
	ipv4 = append(ipv4, v4...)
	ipv4 = append(ipv4, bpf.Jump{Skip: uint32(len(ipv6))})

	// No IPv4 source: over the IPv4 part. Its length may be more than a
	// conditional jump can skip.
	prog = append(prog,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1},
		bpf.Jump{Skip: uint32(len(ipv4))})
	prog = append(prog, ipv4...)
	return append(prog, ipv6...)
}
