package requests

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	between  = Verdict{Strict: Between, Wide: Between, Request: Endless}
	wide     = Verdict{Strict: Unknown, Wide: Between, Request: Endless}
	owing1   = Verdict{Strict: Owes, Wide: Owes, Request: 100 * ms, Alternates: true}
	oldOwing = Verdict{Strict: Owes, Wide: Owes, Request: 2 * time.Second, Alternates: true}
	strange  = Verdict{Strict: Owes, Wide: Owes, Request: 100 * ms}
)

// Every connection that there can be, under every permission that there can be, at
// one look.
func TestReleaseOfOneConnection(t *testing.T) {
	t.Parallel()
	classes := []Class{Unknown, Owes, Sending, Streaming, Between}
	cases := 0
	for _, standing := range []Standing{Unlisted, ByStrict, ByWide, Ignored} {
		for _, strict := range classes {
			for _, wide := range classes {
				for _, silent := range []time.Duration{0, 9 * time.Second, 10 * time.Second, time.Hour} {
					for _, age := range []time.Duration{0, young - 1, young, Endless} {
						for _, alternates := range []bool{false, true} {
							for _, quiet := range []time.Duration{0, 10 * time.Second} {
								for _, missing := range []int{0, 1} {
									for _, permitted := range []bool{false, true} {
										cases++
										v := Verdict{Strict: strict, Wide: wide, Silent: silent, Request: age, Alternates: alternates}
										class := map[Standing]Class{ByStrict: strict, ByWide: wide}[standing]
										want := permitted && missing == 0 && (standing == Ignored ||
											standing != Unlisted && (class == Between || class == Unknown && quiet > 0 && silent >= quiet))
										var permission *Permission
										if permitted {
											permission = &Permission{Quiet: quiet, BusyAfter: 10 * time.Second}
										}
										var r Release
										got := look(&r, time.Unix(1000, 0), permission, []Counted{{standing, v}}, missing)
										if got.Go != want || got.Cut != 0 {
											t.Fatalf("%+v of %d under %+v, %d missing: %+v", v, standing, permission, missing, got)
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if cases != 4*5*5*4*4*2*2*2*2 {
		t.Errorf("%d cases", cases)
	}
}

func of(standing Standing, all ...Verdict) []Counted {
	var counted []Counted
	for _, v := range all {
		counted = append(counted, Counted{standing, v})
	}
	return counted
}

func TestReleaseOfMany(t *testing.T) {
	t.Parallel()
	permission := &Permission{Quiet: 10 * time.Second, BusyAfter: 10 * time.Second}
	for _, tc := range []struct {
		name    string
		all     []Counted
		missing int
		want    Outcome
	}{
		{"nothing is there", nil, 0, Outcome{Go: true}},
		{"all between", of(ByWide, between, between, wide), 0, Outcome{Go: true}},
		{"one of them by the wide rule only, under the strict one", of(ByStrict, between, wide), 0, Outcome{Holding: 1}},
		{"each under its own", append(of(ByStrict, between), of(ByWide, wide)...), 0, Outcome{Go: true}},
		{"one owes", append(of(ByWide, between, between), of(ByWide, owing1)...), 0, Outcome{Holding: 1}},
		{"one that is ignored owes", append(of(ByWide, between), of(Ignored, owing1)...), 0, Outcome{Go: true}},
		{"one that nobody knows is between", append(of(ByWide, between), of(Unlisted, between)...), 0, Outcome{Holding: 1, Unlisted: 1}},
		{"one has no socket", of(ByWide, between), 1, Outcome{Holding: 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var r Release
			got := look(&r, time.Unix(1000, 0), permission, tc.all, tc.missing)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// A pod that is never without a request: how many hold at each look, what the
// permission is, and when it is let go with how many cut.
func TestReleaseOfABusyPod(t *testing.T) {
	t.Parallel()
	const step = 100 * ms
	type end struct {
		After time.Duration
		Cut   int
	}
	never := end{}
	s := time.Second
	numbers := func(of func(at time.Duration) int) func(time.Duration) ([]Counted, int) {
		return func(at time.Duration) ([]Counted, int) {
			n := of(at)
			all := crowd(n)
			return all, 0
		}
	}
	pattern := func(at time.Duration) int { return 3 + int(at/step)%5 } // 3, 4, 5, 6, 7
	always := func(time.Duration) bool { return true }
	for _, tc := range []struct {
		name      string
		look      func(time.Duration) ([]Counted, int)
		permitted func(time.Duration) bool
		busyAfter time.Duration
		want      end
	}{
		{"the look with the fewest", numbers(pattern), always, 10 * s, end{10 * s, 3}},
		{"never, if nobody wants that", numbers(pattern), always, 0, never},
		{"it is learned first", numbers(func(at time.Duration) int { return max(1, 20-int(at/s)) }), always, 10 * s, end{10 * s, 10}},
		{"as few as there were come back", numbers(func(at time.Duration) int {
			if at == 4*s || at == 11*s {
				return 1
			}
			return 5
		}), always, 10 * s, end{11 * s, 1}},
		{"as few as there were never come back", numbers(func(at time.Duration) int {
			if at == 4*s {
				return 1
			}
			return 5
		}), always, 10 * s, end{12600 * ms, 5}},
		{"an old request comes between", func(at time.Duration) ([]Counted, int) {
			if at >= 8*s && at <= 9*s {
				return of(ByWide, owing1, oldOwing), 0
			}
			return crowd(2), 0
		}, always, 10 * s, end{19100 * ms, 2}},
		{"probes come between", func(at time.Duration) ([]Counted, int) {
			if at%s < 300*ms {
				return append(of(ByWide, owing1), of(Unlisted, strange)...), 0
			}
			return crowd(2), 0
		}, always, 10 * s, end{10300 * ms, 2}},
		{"an old request is always there", func(time.Duration) ([]Counted, int) { return of(ByWide, owing1, oldOwing), 0 }, always, 10 * s, never},
		{"one is always there that was not seen to alternate", func(time.Duration) ([]Counted, int) { return of(ByWide, owing1, strange), 0 }, always, 10 * s, never},
		{"one is always there that nobody knows", func(time.Duration) ([]Counted, int) {
			return append(of(ByWide, owing1), of(Unlisted, owing1)...), 0
		}, always, 10 * s, never},
		{"one never has a socket", func(time.Duration) ([]Counted, int) { return crowd(2), 1 }, always, 10 * s, never},
		{"a moment without a request comes first", numbers(func(at time.Duration) int { return max(0, 3-int(at/s)) }), always, 10 * s, end{3 * s, 0}},
		{"the permission is taken back", numbers(pattern), func(at time.Duration) bool { return at < 9*s }, 10 * s, never},
		{"the permission is away for a moment", numbers(pattern), func(at time.Duration) bool { return at != 9*s }, 10 * s, end{19500 * ms, 3}},
		{"a moment without a request, without the permission", numbers(func(time.Duration) int { return 0 }), func(at time.Duration) bool { return at >= 5*s }, 10 * s, end{5 * s, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var r Release
			got := never
			for at := time.Duration(0); at < time.Minute; at += step {
				all, missing := tc.look(at)
				var permission *Permission
				if tc.permitted(at) {
					permission = &Permission{Quiet: 10 * s, BusyAfter: tc.busyAfter}
				}
				if o := look(&r, time.Unix(1000, 0).Add(at), permission, all, missing); o.Go {
					got = end{at, o.Cut}
					break
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("end (-want +got):\n%s", diff)
			}
		})
	}
}

// crowd are so many young requests, and one connection between two.
func crowd(n int) []Counted {
	all := of(ByWide, between)
	for range n {
		all = append(all, Counted{ByWide, owing1})
	}
	return all
}

// Whatever comes: nothing is let go without a permission, with a connection that
// nobody knows, or with one that owes, sends or streams, but for young ones once
// nothing else has held for BusyAfter.
func FuzzRelease(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, byte(10))
	f.Add([]byte{0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81}, byte(2))
	f.Fuzz(func(t *testing.T, script []byte, busyAfter byte) {
		const step = 250 * ms
		var r Release
		start := time.Unix(1000, 0)
		// The looks since when nothing but young requests held for long, and since when
		// something else did.
		youngSince, otherSince := -1, -1
		permission := Permission{Quiet: 10 * time.Second, BusyAfter: time.Duration(busyAfter) * time.Second}
		for i := 0; i+2 < len(script); i += 3 {
			all := make([]Counted, 0, 2)
			for _, b := range script[i : i+2] {
				c := Class(b & 7 % 5)
				all = append(all, Counted{Standing(b >> 3 & 3), Verdict{
					Strict: c, Wide: Class(b >> 5 % 5), Request: time.Duration(b>>6) * 600 * ms, Alternates: b>>7 == 1,
					Silent: time.Duration(b) * 100 * ms,
				}})
			}
			missing := 0
			if script[i+2]&7 == 7 {
				missing = 1
			}
			var p *Permission
			if script[i+2]>>3&7 != 7 {
				p = &permission
			}
			o := look(&r, start.Add(time.Duration(i/3)*step), p, all, missing)
			hold, old := 0, missing
			for _, c := range all {
				class := c.Verdict.Wide
				if c.Standing == ByStrict {
					class = c.Verdict.Strict
				}
				switch {
				case c.Standing == Ignored, c.Standing != Unlisted && (class == Between || class == Unknown && c.Verdict.Silent >= permission.Quiet):
					continue
				case c.Standing == Unlisted, !c.Verdict.Alternates, c.Verdict.Request >= time.Second:
					old++
				}
				hold++
			}
			switch {
			case p == nil || hold+missing == 0:
				youngSince, otherSince = -1, -1
			case old > 0 && otherSince < 0:
				otherSince = i / 3
			case old > 0 && time.Duration(i/3-otherSince)*step >= time.Second:
				youngSince = -1
			case old == 0:
				otherSince = -1
				if youngSince < 0 {
					youngSince = i / 3
				}
			}
			busy := youngSince >= 0 && busyAfter > 0 && time.Duration(i/3-youngSince)*step >= permission.BusyAfter
			switch {
			case o.Go && (p == nil || old > 0 || hold > 0 && !busy || o.Cut != hold):
				t.Fatalf("look %d: %+v of %+v, %d missing, permission %v", i/3, o, all, missing, p)
			case !o.Go && p != nil && hold+missing == 0:
				t.Fatalf("look %d: %+v although nothing holds", i/3, o)
			case o.Go:
				return
			}
		}
	})
}

// Of what is cut is told apart what nobody could tell.
func TestReleaseOfWhatNobodyCanTell(t *testing.T) {
	t.Parallel()
	busy := Verdict{Strict: Unknown, Wide: Owes, Alternates: true}
	all := []Counted{{ByWide, busy}, {ByStrict, busy}, {Standing: Ignored}}
	var r Release
	var o Outcome
	for at := time.Duration(0); at <= time.Second && !o.Go; at += 100 * ms {
		o = look(&r, time.Unix(1000, 0).Add(at), &Permission{BusyAfter: time.Second}, all, 0)
	}
	if want := (Outcome{Go: true, Cut: 2, Untold: 1, Holding: 2}); o != want {
		t.Errorf("%+v, want %+v", o, want)
	}
}

// look takes in a look that is judged at once.
func look(r *Release, at time.Time, permission *Permission, all []Counted, missing int) Outcome {
	return r.Look(at, at, permission, all, missing)
}

// A look that is late by the time it is judged lets go only if the one before was late, too,
// and has shown the same, and if it is not too old for that.
func TestReleaseByLateLooks(t *testing.T) {
	t.Parallel()
	var (
		quiet  = []Counted{{ByStrict, between}}
		busy   = []Counted{{ByStrict, owing1}}
		missed = []Counted{}
	)
	type seen struct {
		all []Counted
		old time.Duration
	}
	const late = Recent + 1
	for _, tc := range []struct {
		name        string
		looks       []seen
		want, again bool // by the last look; none before it lets go
	}{
		{"soon enough", []seen{{quiet, Recent}}, true, false},
		{"late", []seen{{quiet, late}}, false, false},
		{"late twice", []seen{{quiet, late}, {quiet, late}}, true, true},
		{"late, then soon", []seen{{quiet, late}, {quiet, 0}}, true, true},
		{"late, then just not too late", []seen{{quiet, time.Hour}, {quiet, stale}}, true, true},
		{"late, then too late", []seen{{quiet, late}, {quiet, stale + 1}}, false, false},
		{"too late twice, then late", []seen{{quiet, stale + 1}, {quiet, stale + 1}, {quiet, late}}, true, true},
		{"late beside a request", []seen{{busy, late}, {quiet, late}}, false, false},
		{"a request between", []seen{{quiet, late}, {busy, 0}, {quiet, late}}, false, false},
		{"a look missed between", []seen{{quiet, late}, {missed, 0}, {quiet, late}}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r Release
			at := time.Unix(1000, 0)
			for i, s := range tc.looks {
				at = at.Add(lookEvery)
				if len(s.all) == 0 {
					r.Missed()
					continue
				}
				got := r.Look(at, at.Add(s.old), &Permission{BusyAfter: time.Hour}, s.all, 0)
				last := i == len(tc.looks)-1
				if got.Go != (last && tc.want) || got.Again != (last && tc.again) {
					t.Fatalf("look %d: %+v", i, got)
				}
			}
		})
	}
}

// What a late look would have cut is not told of.
func TestReleaseThatIsNotYetCutsNothing(t *testing.T) {
	t.Parallel()
	permission := &Permission{BusyAfter: time.Second}
	all := []Counted{{ByWide, Verdict{Wide: Owes, Alternates: true}}}
	var r Release
	var o Outcome
	at := time.Unix(1000, 0)
	for end := at.Add(permission.BusyAfter); !at.After(end); at = at.Add(100 * ms) {
		o = r.Look(at, at.Add(Recent+1), permission, all, 0)
	}
	if want := (Outcome{Holding: 1}); o != want {
		t.Errorf("%+v, want %+v", o, want)
	}
	o = r.Look(at, at.Add(Recent+1), permission, all, 0)
	if want := (Outcome{Go: true, Again: true, Cut: 1, Holding: 1}); o != want {
		t.Errorf("%+v, want %+v", o, want)
	}
}
