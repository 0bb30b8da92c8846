package conntrack

import "time"

// clockSlack is how much two readings of the remaining life may differ though no
// packet came between them: the kernel's tick, and the time that a question takes.
const clockSlack = 100 * time.Millisecond

// lastPacket derives when a flow last had a packet from how its remaining life,
// which every packet sets anew, changes from look to look. The kernel tells whole
// seconds only, so each look gives an interval in which the entry expires, and
// many looks make it narrow. The remaining life alone says nothing: five rules of
// the kernel cap it (see limits.stalled), and the setting may have changed since
// the last packet. All errors are on the side of a later packet: by up to a second
// where the full life is known, by up to two where it is not.
type lastPacket struct {
	// The entry expires between these, if no packet came since the looks that told.
	earliest, latest     time.Time
	earliestBy, latestBy time.Time
	// first and asked are when the first and the latest look began.
	first, asked time.Time
	// life is what a packet gives the entry: the full life, or the least that it
	// can be. It is in whole seconds.
	life time.Duration
	// most is the most that was told since a packet last gave less.
	most time.Duration
	// at is the latest moment at which the last packet can have come.
	at time.Time
	// estimated is false as long as at is merely the first look.
	estimated bool
}

// look takes note of the remaining life, in whole seconds, that the kernel told
// between asked and answered. full is what a packet gives, where the kernel's
// settings and the flow's state tell, else 0. It returns true if a packet has
// surely come since the look before.
func (p *lastPacket) look(remaining uint32, full time.Duration, asked, answered time.Time) bool {
	r := time.Duration(remaining) * time.Second
	earliest, latest := asked.Add(r), answered.Add(r+time.Second)
	first := p.latest.IsZero()
	more := !first && earliest.After(p.latest.Add(clockSlack))
	less := !first && latest.Before(p.earliest.Add(-clockSlack))
	var since time.Time // the packet that moved the expiry came later than this
	switch {
	case first:
		p.life, p.estimated, p.first = full, full > 0, asked
	case more:
		since = p.latestBy
	case less:
		since = p.earliestBy
	}
	if less {
		p.most = 0
	}
	p.most = max(p.most, r)
	if more || less {
		p.estimated = true
		// Does the full life fit to that? If not, a rule of the kernel capped it, or
		// the flow has a policy of its own.
		if p.life = p.most; full > 0 && !latest.Add(clockSlack-full).Before(since) && !earliest.Add(-full-clockSlack).After(answered) {
			p.life = full
		}
	}
	if first || more || less {
		p.earliest, p.latest, p.earliestBy, p.latestBy = earliest, latest, asked, asked
	}
	if earliest.After(p.earliest) {
		p.earliest, p.earliestBy = earliest, asked
	}
	if latest.Before(p.latest) {
		p.latest, p.latestBy = latest, asked
	}
	p.asked, p.life = asked, max(p.life, r)
	// A packet within a second of the one before may not show: the entry can expire
	// as late as this look says, so the packet can have come that late, too.
	at := earlier(answered, latest.Add(-p.life))
	at = later(at, since)
	if first || at.After(p.at) {
		p.at = at
	}
	return first || more || less
}

// packet notes a packet that was seen in another way.
func (p *lastPacket) packet(now time.Time) { p.at, p.asked, p.estimated = now, now, true }

// watched is for how long the flow has been looked at.
func (p *lastPacket) watched() time.Duration { return p.asked.Sub(p.first) }

// quiet is how long there had been no packet at the latest look, at the least.
// What came since nobody has seen yet: a reader that is kept from looking must not
// take that for silence.
func (p *lastPacket) quiet() time.Duration { return max(p.asked.Sub(p.at), 0) }
