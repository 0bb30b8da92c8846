package node

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
)

// newVigil is one of a pod with a session that holds for its requests.
func newVigil() *vigil {
	d := newDrain(podWithGrace(30, 30), time.Now(), false, Config{Logger: slog.New(slog.DiscardHandler)})
	v := &vigil{drain: d}
	v.apart.requests, v.apart.wide = 1, lifecycle.PeerSet{peer(1): {}}
	return v
}

var whenQuiet = lifecycle.Decision{Phase: lifecycle.Draining, WhenQuiet: true}

// tells says whether the held requests are told something.
func (d *drain) tells(do func()) bool {
	before := d.news
	do()
	return d.news != before
}

// A permission appears and goes at once, and so do other rules; other clients are worth
// an answer only after a while.
func TestPermitIsPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVigil()
		expect := func(when string, want bool, d lifecycle.Decision) {
			t.Helper()
			if got := v.tells(func() { v.permit(d, time.Now()) }); got != want {
				t.Errorf("%s: the held are told: %t", when, got)
			}
		}
		holds := lifecycle.Decision{Phase: lifecycle.Draining}
		expect("nothing was permitted", false, holds)
		expect("it appears", true, whenQuiet)
		expect("it stays", false, whenQuiet)
		v.apart.wide = lifecycle.PeerSet{peer(1): {}, peer(2): {}}
		expect("another client", false, whenQuiet)
		if left := time.Until(v.renewAt); left <= 0 || left > time.Second {
			t.Errorf("another client is in it after %s", left)
		}
		<-time.After(time.Until(v.renewAt))
		expect("another client, a while later", true, whenQuiet)
		v.apart.wide, v.apart.ignored = lifecycle.PeerSet{peer(1): {}}, lifecycle.PeerSet{peer(2): {}}
		expect("one that is idle", false, whenQuiet)
		<-time.After(time.Until(v.renewAt))
		expect("one that is idle, a while later", true, whenQuiet)
		v.apart.wide, v.apart.ignored = lifecycle.PeerSet{peer(1): {}, peer(2): {}}, nil
		expect("one that is idle no more", true, whenQuiet)
		quiet := time.Second
		v.settings.Quiet = &quiet
		expect("another silence", true, whenQuiet)
		expect("it goes", true, holds)
		expect("it comes again", true, whenQuiet)
		expect("the release", false, lifecycle.Decision{Phase: lifecycle.Released})
	})
}

// The smaller silence counts: that of a connection which nobody can tell, or of any.
func TestQuietOfAPermission(t *testing.T) {
	second := time.Second
	for _, tc := range []struct {
		name  string
		quiet *time.Duration
		idle  time.Duration
		want  float64
	}{
		{"neither", nil, 0, 10},
		{"a shorter idle-after", nil, 5 * time.Second, 5},
		{"a longer idle-after", nil, time.Minute, 10},
		{"a shorter quiet", &second, 5 * time.Second, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := newVigil()
			v.settings.Quiet, v.settings.IdleAfter = tc.quiet, tc.idle
			if got := v.whenQuiet().QuietSeconds; got != tc.want {
				t.Errorf("%g s, want %g", got, tc.want)
			}
		})
	}
}

// A hook is answered at once where what it goes by is not what is so now.
func TestStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVigil()
		judge := func(mark string, had time.Time) *caller {
			return &caller{can: []string{lifecycle.CanJudge}, looks: true, mark: mark, had: had}
		}
		expect := func(what string, want bool, c *caller) {
			t.Helper()
			if got := v.stale(c); got != want {
				t.Errorf("%s: %t, want %t", what, got, want)
			}
		}
		expect("a first request", false, judge("", time.Time{}))
		expect("of another helper, which may have permitted", true, judge("x-1", time.Time{}))
		early := time.Now()
		expect("nothing was permitted", false, judge("1", early))
		<-time.After(time.Second)
		v.permit(whenQuiet, time.Now())
		<-time.After(time.Second)
		expect("it does not know yet", true, judge("1", early))
		expect("a first request, with a permission", true, judge("", time.Time{}))
		expect("it knows", false, judge("2", time.Now()))
		expect("it cannot judge", false, &caller{looks: true, mark: "1", had: early})
		knows := judge("2", time.Now())
		<-time.After(time.Second)
		v.permit(lifecycle.Decision{Phase: lifecycle.Draining}, time.Now())
		expect("it was taken back", true, knows)
	})
}

// A hook's last word ends a drain only while the pod still may go, and it counts no more
// requests than there are sessions.
func TestLastWord(t *testing.T) {
	holds := lifecycle.Decision{Phase: lifecycle.Draining}
	for _, tc := range []struct {
		name      string
		permitted bool
		d         lifecycle.Decision
		words     []int
		want      lifecycle.Reason
		cut       int
	}{
		{"nobody left", true, whenQuiet, nil, "", 0},
		{"one left", true, whenQuiet, []int{0}, lifecycle.Drained, 0},
		{"two left", true, whenQuiet, []int{0, 1, 0}, lifecycle.Drained, 1},
		{"more than there are", true, whenQuiet, []int{1000}, lifecycle.Drained, 1},
		{"fewer than none", true, whenQuiet, []int{-1}, lifecycle.Drained, 0},
		{"something came", true, holds, []int{0}, "", 0},
		{"never permitted", false, whenQuiet, []int{0}, "", 0},
		{"released meanwhile", true, lifecycle.Decision{Phase: lifecycle.Released, Reason: lifecycle.Expired}, []int{1}, lifecycle.Expired, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := newVigil()
			if tc.permitted {
				v.permit(whenQuiet, time.Now())
			}
			for _, cut := range tc.words {
				v.leave(lifecycle.Leaving{Cut: cut})
			}
			d := v.ended(tc.d)
			if d.Reason != tc.want {
				t.Errorf("reason %q, want %q", d.Reason, tc.want)
			}
			if v.endedBy != nil && v.endedBy.Cut != tc.cut || v.endedBy == nil && tc.want == lifecycle.Drained {
				t.Errorf("ended by %+v, want %d cut", v.endedBy, tc.cut)
			}
			if again := v.ended(whenQuiet); tc.words != nil && again.Phase == lifecycle.Released {
				t.Error("the same word counts twice")
			}
		})
	}
}

// What lets go rests on what the kernel says now: each release but one that looks at no
// session, and a permission that was not there before.
func TestUnconfirmed(t *testing.T) {
	drained := lifecycle.Decision{Phase: lifecycle.Released, Reason: lifecycle.Drained}
	withdrawn := lifecycle.Observation{Policy: lifecycle.Policy{Until: lifecycle.UntilWithdrawn}}
	for _, tc := range []struct {
		name      string
		permitted bool
		d         lifecycle.Decision
		o         lifecycle.Observation
		want      bool
	}{
		{"a release", false, drained, lifecycle.Observation{}, true},
		{"a release, with a permission", true, drained, lifecycle.Observation{}, true},
		{"a release that looks at no session", false, drained, withdrawn, false},
		{"the deadline", false, lifecycle.Decision{Phase: lifecycle.Released, Reason: lifecycle.Expired}, lifecycle.Observation{}, false},
		{"a permission", false, whenQuiet, lifecycle.Observation{}, true},
		{"a permission that stays", true, whenQuiet, lifecycle.Observation{}, false},
		{"nothing lets go", false, lifecycle.Decision{Phase: lifecycle.Draining}, lifecycle.Observation{}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := newVigil()
			if tc.permitted {
				v.permit(whenQuiet, time.Now())
			}
			if got := v.unconfirmed(tc.d, tc.o); got != tc.want {
				t.Errorf("%t, want %t", got, tc.want)
			}
		})
	}
}

// Where a handshake came beside a hook's last word, and the pod then ended without any hook,
// it was not its time that was up.
func TestLastWordBesideAHandshake(t *testing.T) {
	expired := lifecycle.Decision{Phase: lifecycle.Released, Reason: lifecycle.Expired}
	for _, tc := range []struct {
		name     string
		word     bool
		sessions int
		known    bool
		want     lifecycle.Reason
	}{
		{"a handshake alone", true, 0, true, lifecycle.Drained},
		{"a zero that the sockets have not confirmed", true, 0, true, lifecycle.Expired},
		{"no word", false, 0, true, lifecycle.Expired},
		{"a session that holds", true, 1, true, lifecycle.Expired},
		{"nobody knows", true, 0, false, lifecycle.Expired},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := newVigil()
			v.permit(whenQuiet, time.Now())
			v.apart.sessions, v.apart.requests, v.apart.counts.Known = tc.sessions, 2, tc.known
			v.pending = strings.HasPrefix(tc.name, "a zero")
			if tc.word {
				v.leave(lifecycle.Leaving{Cut: 9})
			}
			if d := v.ended(lifecycle.Decision{Phase: lifecycle.Settling}); d.Phase != lifecycle.Settling {
				t.Errorf("%+v while a handshake is under way", d)
			}
			v.apart.requests = 0 // they have gone with their container
			if d := v.ended(expired); d.Reason != tc.want {
				t.Errorf("reason %s in the end, want %s", d.Reason, tc.want)
			}
			if tc.want == lifecycle.Drained && (v.endedBy == nil || v.endedBy.Cut != 2) {
				t.Errorf("ended by %+v, want the 2 requests that were cut", v.endedBy)
			}
		})
	}
}

// A pod that is gone was let go by its hooks where they were permitted to, whether the last
// word came or not; where it did not, nobody knows what was cut.
func TestPodThatIsGone(t *testing.T) {
	holds := lifecycle.Decision{Phase: lifecycle.Draining}
	cancelled := lifecycle.Decision{Phase: lifecycle.Released, Reason: lifecycle.Cancelled}
	nothing := func(*vigil) {}
	asks := func(v *vigil) {
		v.judges.hear(lifecycle.DrainRequest{Can: []string{lifecycle.CanJudge}, Sockets: &lifecycle.SocketList{}}, time.Now())
	}
	for _, tc := range []struct {
		name    string
		before  lifecycle.Decision
		between func(*vigil) // what comes before it is gone
		want    lifecycle.Reason
		unheard bool
		cut     int
	}{
		{"without a word", whenQuiet, nothing, lifecycle.Drained, true, 0},
		{"with the word, at the same time", whenQuiet, func(v *vigil) { v.leave(lifecycle.Leaving{Cut: 1}) }, lifecycle.Drained, false, 1},
		{"with the word, which something kept from ending it", whenQuiet, func(v *vigil) {
			v.leave(lifecycle.Leaving{Cut: 1})
			v.ended(holds)
		}, lifecycle.Drained, false, 1},
		{"with a word, and a session that holds the rest", whenQuiet, func(v *vigil) {
			v.leave(lifecycle.Leaving{Cut: 1})
			v.ended(holds)
			v.apart.sessions = 1
		}, lifecycle.Cancelled, false, 0},
		{"deleted by force, while a hook asks", whenQuiet, asks, lifecycle.Cancelled, false, 0},
		{"never permitted", holds, nothing, lifecycle.Cancelled, false, 0},
		{"the permission was taken back, from nobody who is here", whenQuiet, func(v *vigil) {
			v.permit(holds, time.Now())
			v.ended(holds)
		}, lifecycle.Drained, true, 0},
		{"the permission was taken back, and a hook knows", whenQuiet, func(v *vigil) {
			v.permit(holds, time.Now())
			asks(v)
			v.ended(holds)
		}, lifecycle.Cancelled, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := newVigil()
			v.permit(tc.before, time.Now())
			v.ended(tc.before)
			tc.between(v)
			v.changed(v.pod, true)
			if d := v.ended(cancelled); d.Reason != tc.want || v.unheard != tc.unheard {
				t.Errorf("reason %s, unheard: %t, want %s, %t", d.Reason, v.unheard, tc.want, tc.unheard)
			}
			if tc.cut > 0 && (v.endedBy == nil || v.endedBy.Cut != tc.cut) {
				t.Errorf("ended by %+v, want %d cut", v.endedBy, tc.cut)
			}
		})
	}
}

// What a hook cut that went before the others is not forgotten at the end of the rest, nor
// counted twice: its container's sessions may have gone by the time that its word is read,
// and others be left.
func TestLastWordBesideASession(t *testing.T) {
	client := func(n uint16) conntrack.Session { return conntrack.Session{Protocol: conntrack.TCP, Client: peer(n)} }
	for _, tc := range []struct {
		name  string
		words []lifecycle.Leaving
		gone  bool // before the word is read
		left  []conntrack.Session
		want  lifecycle.Leaving
	}{
		{"no word", nil, false, nil, lifecycle.Leaving{}},
		{"nothing was cut", []lifecycle.Leaving{{}}, false, nil, lifecycle.Leaving{}},
		{"all have ended", []lifecycle.Leaving{{Cut: 2, Untold: 1}}, false, nil, lifecycle.Leaving{Cut: 2, Untold: 1}},
		{"they had gone", []lifecycle.Leaving{{Cut: 2}}, true, nil, lifecycle.Leaving{Cut: 2}},
		{"more than there were", []lifecycle.Leaving{{Cut: 9, Untold: 9}}, false, nil, lifecycle.Leaving{Cut: 3, Untold: 3}},
		{"two hooks", []lifecycle.Leaving{{Cut: 1}, {Cut: 2}}, false, nil, lifecycle.Leaving{Cut: 2}},
		{"another session is left", []lifecycle.Leaving{{Cut: 3}}, false, []conntrack.Session{client(9)}, lifecycle.Leaving{Cut: 3}},
		{"two of its own are left", []lifecycle.Leaving{{Cut: 2, Untold: 2}}, false, []conntrack.Session{client(1), client(3)}, lifecycle.Leaving{Cut: 1, Untold: 1}},
		{"all of its own are left", []lifecycle.Leaving{{Cut: 2}}, false, []conntrack.Session{client(1), client(2), client(3)}, lifecycle.Leaving{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := newVigil()
			holds := lifecycle.Decision{Phase: lifecycle.Draining}
			v.apart.requests, v.apart.sessions = 3, 1
			v.apart.wide, v.apart.strict = lifecycle.PeerSet{peer(1): {}, peer(2): {}}, lifecycle.PeerSet{peer(3): {}}
			v.ended(holds)
			if tc.gone {
				v.apart = apart{}
				v.apart.sessions = 1
			}
			for _, l := range tc.words {
				v.leave(l)
				if d := v.ended(holds); d.Phase != lifecycle.Draining {
					t.Errorf("%+v beside a session that holds", d)
				}
			}
			v.apart = apart{}
			end := lifecycle.Decision{Phase: lifecycle.Released, Reason: lifecycle.Drained}
			if d := v.ended(end); d.Reason != end.Reason || v.endedBy != nil {
				t.Errorf("%+v, ended by %+v, want that of the last session", d, v.endedBy)
			}
			if got := v.parted(tc.left); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}
