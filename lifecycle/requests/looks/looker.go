package looks

import (
	"context"
	"slices"
	"time"

	"github.com/conndrain/conndrain/conntrack/sockdiag"
	"github.com/conndrain/conndrain/lifecycle/requests"
)

const (
	// timeout is how long the kernel may take to list the sockets.
	timeout = time.Second
	// share is the part of a CPU that looks may take: 1/20, whoever asks for them.
	share = 20
	// longest is the longest pause between two looks. One of a quarter of a second is
	// that of a hundred thousand sockets.
	longest = 5 * time.Second
)

// Connection is one that counts, and what it is doing.
type Connection struct {
	sockdiag.Socket
	requests.Verdict
}

// Sight is what one look came to. It is not changed afterwards.
type Sight struct {
	sockdiag.Look
	// Err is why the look failed. Nothing else then means anything.
	Err error
	// Listened are the ports that some socket was seen to listen on: a server that has
	// stopped to listen goes on with what it has accepted. Those without any of that are
	// forgotten while nobody waits.
	Listened []uint16
	// Counted are the connections of the looker's scope.
	Counted []Connection
}

// Blind is why this look tells of no request, or empty.
func (s Sight) Blind() string {
	switch {
	case s.Err != nil:
		return "its sockets are unknown: " + s.Err.Error()
	case s.Source != sockdiag.SockDiag:
		return "its sockets tell of no traffic, because they are known from " + s.Source.String() + " alone: " + s.Refusal.Error()
	case slices.ContainsFunc(s.Traffic, func(t sockdiag.Traffic) bool { return t.Known }):
		return ""
	case len(s.Counted) > 0:
		return "its kernel tells too little of a connection: Linux 4.19 and newer tell enough"
	}
	return ""
}

// Looker takes looks and remembers what they teach. It is for one goroutine.
type Looker struct {
	// Take takes one look; nil is sockdiag.TakeTraffic.
	Take func(context.Context) (sockdiag.Look, error)
	// Spent is what this process has spent of a CPU; nil asks the kernel. A look that
	// had to wait for its turn on a busy node is no dearer for that, and a release must
	// not wait for it.
	Spent func() time.Duration
	// Scope says what counts; its Listened is filled in.
	Scope sockdiag.Scope

	classifier *requests.Classifier
	listened   []uint16
	// stopped are the connections of ports that nobody listens on any more, from the
	// first look on that found it so.
	stopped map[uint16]map[ends]struct{}
	began   time.Time
	cost    time.Duration
}

// Look takes a look of a wait. It blocks for a second at the most.
func (l *Looker) Look(ctx context.Context) Sight { return l.look(ctx, true) }

// look takes a look. waited says that somebody waits: no port is forgotten then.
func (l *Looker) look(ctx context.Context, waited bool) Sight {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l.began = time.Now()
	spent := l.Spent
	if spent == nil {
		spent = processTime
	}
	before := spent()
	failed := false
	defer func() {
		l.cost = spent() - before
		if failed {
			// What it took says nothing of what the next one takes.
			l.cost = min(l.cost, timeout/share)
		}
	}()
	take := l.Take
	if take == nil {
		take = sockdiag.TakeTraffic
	}
	look, err := take(ctx)
	if look.At.Before(l.began) {
		look.At = l.began
	}
	if err != nil {
		failed = true
		return Sight{Look: sockdiag.Look{At: look.At}, Err: err}
	}
	l.listen(look, waited)
	s := Sight{Look: look, Listened: l.listened}
	scope := l.Scope
	scope.Listened = append(slices.Clip(scope.Listened), l.listened...)
	s.Counted = l.judge(look, look.CountedAt(scope))
	return s
}

// judge says what the sockets at these places are doing.
func (l *Looker) judge(look sockdiag.Look, places []int) []Connection {
	if l.classifier == nil {
		l.classifier = requests.New()
	}
	figures := make([]requests.Figures, len(places))
	for n, i := range places {
		var t sockdiag.Traffic
		if i < len(look.Traffic) {
			t = look.Traffic[i]
		}
		figures[n] = Figures(look.Sockets[i], t)
	}
	verdicts := l.classifier.Look(look.At, figures)
	counted := make([]Connection, len(places))
	for n, i := range places {
		counted[n] = Connection{look.Sockets[i], verdicts[n]}
	}
	return counted
}

// Next is when another look may be taken: every so often, and for no more than 1/parts
// of a CPU. A look that somebody waits for may be taken at Affordable already.
func (l *Looker) Next(every time.Duration, parts int) time.Time {
	return l.began.Add(max(every, min(time.Duration(parts)*l.cost, longest)))
}

// Affordable is when another look may be taken at the earliest.
func (l *Looker) Affordable() time.Time { return l.began.Add(min(share*l.cost, longest)) }
