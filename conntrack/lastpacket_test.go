package conntrack

import (
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestLastPacket(t *testing.T) {
	const s = time.Second
	type look struct {
		at        time.Duration
		remaining uint32
		full      time.Duration
		packet    bool // one has surely come
		quiet     time.Duration
	}
	for _, tt := range []struct {
		name      string
		looks     []look
		estimated bool
	}{
		{"one look says nothing", []look{{0, 280, 0, true, 0}}, false},
		{"one look at a known life", []look{{0, 100, 120 * s, true, 19 * s}}, true},
		{"one look right after a packet", []look{{0, 120, 120 * s, true, 0}}, true},
		{"silence", []look{{0, 280, 0, true, 0}, {s, 279, 0, false, 0}, {6 * s, 274, 0, false, 5 * s}}, false},
		{"a packet", []look{{0, 280, 0, true, 0}, {10 * s, 299, 0, true, 0}, {20 * s, 289, 0, false, 9 * s}}, true},
		{"a packet of known life long before the look", []look{
			{0, 110, 120 * s, true, 9 * s}, {100 * s, 90, 120 * s, true, 29 * s},
		}, true},
		{"stalled: the life goes down", []look{
			{0, 431990, 432000 * s, true, 9 * s}, {10 * s, 299, 0, true, 0}, {40 * s, 269, 0, false, 29 * s},
		}, true},
		{"the setting went up, no packet", []look{
			{0, 290, 300 * s, true, 9 * s}, {5 * s, 285, 600 * s, false, 14 * s},
		}, true},
		{"the setting went up, then a packet", []look{
			{0, 290, 300 * s, true, 9 * s}, {5 * s, 599, 600 * s, true, 0},
		}, true},
		{"the setting went down, then a packet", []look{
			{0, 290, 300 * s, true, 9 * s}, {5 * s, 30, 30 * s, true, 0},
		}, true},
		{"a tick is no packet", []look{{0, 290, 0, true, 0}, {1050 * time.Millisecond, 290, 0, false, 0}}, false},
		{"more than a tick is", []look{{0, 290, 0, true, 0}, {1150 * time.Millisecond, 290, 0, true, 0}}, true},
		{"a cap that the setting does not tell", []look{
			{0, 290, 300 * s, true, 9 * s}, {100 * s, 9, 300 * s, true, 0},
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p lastPacket
			for i, l := range tt.looks {
				now := epoch.Add(l.at)
				packet := p.look(l.remaining, l.full, now, now)
				if packet != l.packet || p.quiet() != l.quiet {
					t.Errorf("look %d: packet %v, quiet %s, want %v, %s", i, packet, p.quiet(), l.packet, l.quiet)
				}
			}
			if p.estimated != tt.estimated {
				t.Errorf("estimated = %v", p.estimated)
			}
		})
	}
}

func TestLastPacketSlowAnswers(t *testing.T) {
	var p lastPacket
	p.look(290, 0, epoch, epoch)
	// The kernel answered at any time in these 4 s: nothing is sure.
	if p.look(290, 0, epoch.Add(time.Second), epoch.Add(5*time.Second)) {
		t.Error("a slow answer passed for a packet")
	}
	if q := p.quiet(); q != 0 {
		t.Errorf("quiet %s, but a packet can have come", q)
	}
}

// TestLastPacketNeverTooEarly simulates the kernel: each packet sets the expiry
// anew in whole ticks, and each look is told whole seconds of it.
func TestLastPacketNeverTooEarly(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		pick := func(d ...time.Duration) time.Duration { return d[r.IntN(len(d))] }
		life := pick(5*s, 30*s, 120*s, 300*s, 432000*s)
		tick := pick(ms, 4*ms, 10*ms)
		every := pick(20*ms, 250*ms, 900*ms, s, 1003*ms)
		gap := pick(100*ms, 500*ms, 900*ms, 2*s)
		full, late := life, s
		if r.IntN(2) == 0 {
			full, late = 0, 2*s
		}
		late += every + tick + 2*clockSlack

		var p lastPacket
		now, last := epoch, epoch
		next := now.Add(time.Duration(r.Int64N(int64(2 * gap))))
		left := 3 + r.IntN(20)
		check := func() {
			expiry := last.Truncate(tick).Add(life)
			remaining := uint32(expiry.Sub(now.Truncate(tick)) / time.Second)
			took := time.Duration(r.Int64N(int64(10 * ms)))
			p.look(remaining, full, now.Add(-took), now.Add(took))
			if early := last.Sub(p.at); early > clockSlack {
				t.Fatalf("seed %d: the last packet is thought to be %s older than it is", seed, early)
			}
		}
		for left > 0 {
			now = now.Add(every)
			for left > 0 && !next.After(now) {
				last, left = next, left-1
				next = next.Add(time.Duration(r.Int64N(int64(2 * gap))))
			}
			check()
		}
		for silent := now.Sub(last); silent < min(life, 15*s); silent = now.Sub(last) {
			if quiet := p.quiet(); quiet < silent-late {
				t.Fatalf("seed %d: quiet for %s, thought to be %s", seed, silent, quiet)
			}
			now = now.Add(every)
			if !now.Before(last.Truncate(tick).Add(life)) {
				break // the kernel has dropped it
			}
			check()
		}
	}
}
