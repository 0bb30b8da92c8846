package conntrack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// freshFor is how young the last packet of an entry has to be to prove that the
// kernel tracks connections now.
const freshFor = 10 * time.Second

// tracks makes sure that the kernel tracks the families of the target at all:
// rules ask for it, and those of one family say nothing of the other. What the
// table still holds says nothing either, the rules may be gone. It returns
// ErrNotTracking, wrapped, if nothing shows that it does. It cannot see that
// single ports or addresses are exempt.
func (r *Reader) tracks(ctx context.Context, t Target, l limits) error {
	for _, ipv6 := range []bool{false, true} {
		asked := false
		for _, a := range t.Addresses {
			asked = asked || a.Is6() == ipv6
		}
		if !asked {
			continue
		}
		err := r.kernel.probe(ctx, ipv6)
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrNotTracking) {
			return err
		}
		// Loopback may be exempt, or the table is full.
		shown, walkErr := r.shown(ctx, t, ipv6, l)
		if walkErr != nil {
			return walkErr
		}
		if !shown {
			return fmt.Errorf("%s: %w", map[bool]string{false: "IPv4", true: "IPv6"}[ipv6], err)
		}
	}
	return nil
}

// errShown ends a walk that has found what it is for.
var errShown = errors.New("found an entry")

// shown looks for an entry that shows that the family is tracked: one that has
// just had a packet, or a live one of the target itself.
func (r *Reader) shown(ctx context.Context, t Target, ipv6 bool, l limits) (bool, error) {
	size, err := r.kernel.size()
	if err != nil || size.count == 0 {
		return false, err
	}
	var e entry
	family := func(e *entry) bool { return e.orig.src.Addr().Is6() == ipv6 }
	err = r.kernel.dump(ctx, selection{}, func(m message) error {
		ok, err := e.decode(m.payload, family)
		if err != nil || !ok {
			return err
		}
		now := time.Now()
		f := newFlow(&e, l, now, now)
		own := slices.Contains(t.Addresses, e.reply.src.Addr()) || slices.Contains(t.Addresses, e.orig.src.Addr())
		live := f.judge(now, rules{limits: l}, false) != Over
		fresh := f.last.estimated && f.last.quiet() < freshFor
		if own && live || fresh {
			return errShown
		}
		return nil
	})
	if errors.Is(err, errShown) {
		return true, nil
	}
	return false, err
}

// onlyTCP says whether nothing but TCP is asked for, by name or by leaving it
// open.
func (t Target) onlyTCP() bool {
	return len(t.Protocols) == 0 || slices.Equal(t.Protocols, []Protocol{TCP})
}
