package lifecycle

import (
	"encoding/json"
	"net/netip"
	"slices"
)

// PeerSet is a set of clients' ends of TCP connections. The nil set is empty.
type PeerSet map[netip.AddrPort]struct{}

// Add puts a client into the set.
func (s PeerSet) Add(peer netip.AddrPort) { s[plainPeer(peer)] = struct{}{} }

// Has says whether a client is in the set.
func (s PeerSet) Has(peer netip.AddrPort) bool {
	_, ok := s[plainPeer(peer)]
	return ok
}

// plainPeer is the client as both sides write it.
func plainPeer(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// MarshalJSON writes the ports by address, in order.
func (s PeerSet) MarshalJSON() ([]byte, error) {
	all := make(map[netip.Addr][]uint16)
	for p := range s {
		all[p.Addr()] = append(all[p.Addr()], p.Port())
	}
	for _, ports := range all {
		slices.Sort(ports)
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads what MarshalJSON wrote. It never fails: a client that cannot be
// read is in no set, and one that is in no set holds.
func (s *PeerSet) UnmarshalJSON(b []byte) error {
	*s = make(PeerSet)
	var all map[string]json.RawMessage
	if json.Unmarshal(b, &all) != nil {
		return nil //nolint:nilerr // what cannot be read is in no set
	}
	for text, raw := range all {
		address, err := netip.ParseAddr(text)
		var ports []uint16
		if err != nil || json.Unmarshal(raw, &ports) != nil {
			continue
		}
		for _, port := range ports {
			s.Add(netip.AddrPortFrom(address, port))
		}
	}
	return nil
}
