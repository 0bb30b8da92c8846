package hook

import (
	"net/netip"
	"slices"
	"time"
)

// maxHooks is how many hooks are held at once; a pod has one for each container.
const maxHooks = 256

// places are those of the hooks that a sidecar holds. Whoever may reach the pod can ask
// for them, not only its kubelet: where all are taken, the address with the most gives
// one to an address that has fewer. The zero value has none; a mutex of its owner guards
// it.
type places struct {
	taken int
	of    map[netip.Addr][]*place
}

// place is one hook's.
type place struct {
	from    netip.Addr
	arrived time.Time
	lost    chan struct{} // closed where it was given to another
}

// take returns a place for a hook that comes from an address now, or nil where there is
// none.
func (p *places) take(from netip.Addr, now time.Time) *place {
	if p.taken >= maxHooks {
		var held []*place
		for _, others := range p.of {
			if len(others) > len(held) {
				held = others
			}
		}
		if len(held) <= len(p.of[from])+1 {
			return nil
		}
		lost := held[len(held)-1]
		p.leave(lost)
		close(lost.lost)
	}
	if p.of == nil {
		p.of = make(map[netip.Addr][]*place)
	}
	one := &place{from: from, arrived: now, lost: make(chan struct{})}
	p.of[from] = append(p.of[from], one)
	p.taken++
	return one
}

// first is when the first of those hooks came that are held and meant; ok is false where
// there are none.
func (p *places) first(meant func(arrived time.Time) bool) (first time.Time, ok bool) {
	for _, held := range p.of {
		for _, one := range held {
			if meant(one.arrived) && (!ok || one.arrived.Before(first)) {
				first, ok = one.arrived, true
			}
		}
	}
	return first, ok
}

// leave gives a place back. One that was lost is none any more.
func (p *places) leave(one *place) {
	i := slices.Index(p.of[one.from], one)
	if i < 0 {
		return
	}
	p.taken--
	p.of[one.from] = slices.Delete(p.of[one.from], i, i+1)
	if len(p.of[one.from]) == 0 {
		delete(p.of, one.from)
	}
}
