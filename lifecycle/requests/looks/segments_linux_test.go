package looks

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/conndrain/conndrain/conntrack/netlab"
	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle/requests"
)

// patience is for a machine that is much slower than it should be.
const patience = 60 * time.Second

// The sizes of a request, of half of it, and of an answer.
const (
	requestSize = 100
	halfSize    = 50
	answerSize  = 300
)

// talk is one connection of a client that speaks TCP by itself with the kernel's, and
// the looks at it.
type talk struct {
	*speaker
	pod    *netlab.Namespace
	server net.Conn
	looker Looker
	tick   *time.Ticker
	// due is how many segments have come when the request does that is not answered; 0
	// if all are.
	due uint32
	// traffic is that of the latest look.
	traffic sockdiag.Traffic
}

func newTalk(t *testing.T) *talk {
	t.Helper()
	t.Parallel()
	lab, err := netlab.NewLab(netlab.LabOptions{Untracked: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := lab.Pod.Listen(t.Context(), "tcp4", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s := newSpeaker(t, lab.Client, netip.AddrPortFrom(lab.ClientAddr, 40_000), netip.AddrPortFrom(lab.PodAddr, 8080))
	s.connect()
	err = l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	server, failed := l.Accept()
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	k := &talk{speaker: s, pod: lab.Pod, server: server, tick: time.NewTicker(20 * ms)}
	t.Cleanup(k.tick.Stop)
	k.look()
	return k
}

// look lets the client hear and looks: a request in flight is never between.
func (k *talk) look() requests.Verdict {
	k.t.Helper()
	<-k.tick.C
	k.hear()
	var s Sight
	if err := k.pod.Do(func() error {
		s = k.looker.Look(k.t.Context())
		return s.Err
	}); err != nil {
		k.t.Fatal(err)
	}
	if len(s.Counted) != 1 || s.Blind() != "" {
		k.t.Fatalf("%d connections, want one; blind: %q", len(s.Counted), s.Blind())
	}
	v := s.Counted[0].Verdict
	k.traffic = s.Traffic[0]
	if k.due > 0 && k.traffic.DataReceived >= k.due && (v.Strict == requests.Between || v.Wide == requests.Between) {
		k.t.Fatalf("strict %s, wide %s while a request is in flight: %+v", v.Strict, v.Wide, k.traffic)
	}
	return v
}

// ask says that what is said next begins a request.
func (k *talk) ask() { k.due = k.said + 1 }

// watch takes so many looks, all of which have to find the class by both rules.
func (k *talk) watch(looks int, want requests.Class) {
	k.t.Helper()
	for range looks {
		if v := k.look(); v.Strict != want || v.Wide != want {
			k.t.Fatalf("strict %s, wide %s, want %s: %+v", v.Strict, v.Wide, want, k.traffic)
		}
	}
}

// until looks until something holds.
func (k *talk) until(what string, holds func(requests.Verdict) bool) {
	k.t.Helper()
	for limit := time.Now().Add(patience); ; {
		v := k.look()
		if holds(v) {
			return
		}
		if time.Now().After(limit) {
			k.t.Fatalf("never %s: %+v, %+v", what, v, k.traffic)
		}
	}
}

// read is the server's, which needs all of a request.
func (k *talk) read() {
	k.t.Helper()
	err := k.server.SetReadDeadline(time.Now().Add(patience))
	_, failed := io.ReadFull(k.server, make([]byte, requestSize))
	if err := errors.Join(err, failed); err != nil {
		k.t.Fatal(err)
	}
}

func (k *talk) write(size int) {
	k.t.Helper()
	if _, err := k.server.Write(make([]byte, size)); err != nil {
		k.t.Fatal(err)
	}
}

// answer is that to a request which has come.
func (k *talk) answer() {
	k.t.Helper()
	k.read()
	k.write(answerSize)
	k.due = 0
}

// teach goes on with plain turns until a pause is known for one.
func (k *talk) teach() {
	k.t.Helper()
	for range 100 {
		k.ask()
		k.say(requestSize)
		k.look()
		k.answer()
		between := false
		for range 8 {
			v := k.look()
			between = v.Strict == requests.Between && v.Wide == requests.Between
		}
		if between {
			return
		}
	}
	k.t.Fatalf("a hundred turns teach nothing: %+v", k.traffic)
}

// A keep-alive probe with an octet is neither a request nor the end of an answer.
func TestProbesOnTheWire(t *testing.T) {
	k := newTalk(t)
	probes := func(want requests.Class) {
		t.Helper()
		for range 8 {
			before := k.traffic
			k.probe()
			k.until("counted", func(requests.Verdict) bool { return k.traffic.DataReceived != before.DataReceived })
			if k.traffic.Received != before.Received || k.traffic.Segments == before.Segments {
				t.Fatalf("a probe is taken for more than one: %+v", k.traffic)
			}
			k.watch(4, want)
		}
	}
	probes(requests.Unknown) // has not spoken
	k.ask()
	k.say(requestSize)
	k.until("owed", func(v requests.Verdict) bool { return v.Wide == requests.Owes })
	probes(requests.Owes)
	k.read()
	k.write(answerSize + 200) // and more to come
	k.until("resting", func(v requests.Verdict) bool { return v.Wide == requests.Unknown })
	probes(requests.Unknown)
	k.write(answerSize)
	k.due = 0
	k.teach()
	probes(requests.Between)
}

// A request whose first segment is lost is owed an answer from the second on.
func TestALostSegmentOnTheWire(t *testing.T) {
	k := newTalk(t)
	for i := range uint32(2) { // the first request, and one after others
		k.ask()
		k.ahead(halfSize, halfSize)
		k.until("counted", func(requests.Verdict) bool { return k.traffic.OutOfOrder > i })
		k.watch(60, requests.Owes)
		k.say(halfSize) // late
		k.next += halfSize
		k.watch(20, requests.Owes)
		k.answer()
		k.teach()
	}
}

// Behind an answer in one look can be a part of the next request, whose beginning is
// still to come.
func TestAHoleBehindAnAnswerOnTheWire(t *testing.T) {
	k := newTalk(t)
	k.teach()
	for range 2 {
		k.ask()
		k.say(halfSize)
		k.until("owed", func(v requests.Verdict) bool { return v.Wide == requests.Owes })
		k.say(halfSize)
		k.read()
		<-time.After(20 * ms) // by the kernel's clock the answer surely comes after the request
		k.write(answerSize)
		k.ask()
		for limit, before := time.Now().Add(patience), k.answered; k.answered < before+answerSize; k.hear() {
			if time.Now().After(limit) {
				t.Fatal("the answer never came")
			}
		}
		k.ahead(halfSize, halfSize)
		for range 60 {
			if v := k.look(); v.Strict == requests.Between || v.Wide == requests.Between {
				t.Fatalf("strict %s, wide %s, although nobody can know", v.Strict, v.Wide)
			}
		}
		k.say(halfSize)
		k.next += halfSize
		k.watch(10, requests.Owes)
		k.answer()
		k.teach()
	}
}

// What the kernel sends again it counts among the segments with data, and an answer
// that is not acknowledged is on its way.
func TestAnAnswerThatIsSentAgainOnTheWire(t *testing.T) {
	k := newTalk(t)
	k.teach()
	k.ask()
	k.say(requestSize)
	k.look()
	k.read()
	k.deaf = true
	k.write(answerSize)
	before := k.traffic
	k.until("sent again", func(requests.Verdict) bool { return k.traffic.Retransmits > before.Retransmits })
	if sent, again := k.traffic.DataSent-before.DataSent, k.traffic.Retransmits-before.Retransmits; sent != 1+again {
		t.Errorf("%d segments with data were sent, %d of them again: %+v", sent, again, k.traffic)
	}
	k.watch(10, requests.Sending)
	k.deaf, k.due = false, 0
	k.until("between", func(v requests.Verdict) bool { return v.Strict == requests.Between })
}
