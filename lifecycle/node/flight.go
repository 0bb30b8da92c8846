package node

import (
	"slices"
	"time"

	"github.com/conndrain/conndrain/conntrack"
	"github.com/conndrain/conndrain/lifecycle"
	"github.com/conndrain/conndrain/lifecycle/requests"
)

// flying are the classes of connections on which a request surely is in flight.
var flying = []string{requests.Owes.String(), requests.Sending.String(), requests.Streaming.String()}

// flight is what is known of requests on the sessions that hold for them, as a hook saw
// it last.
type flight struct {
	// requests is on how many one surely was in flight, and silent how many of these had no
	// packet for so long that they are not active otherwise.
	requests, silent int
	untold           untold
	// unsettled is set where they held only because settle or min-delay was not over.
	unsettled bool
}

// flight tells of the sessions that are left. Of one that holds until it has ended the
// classes mean nothing: what is spoken there may be no HTTP.
func (v *vigil) flight(left []conntrack.Session, o lifecycle.Observation, now time.Time) flight {
	f, of := flight{untold: v.untold(now), unsettled: unsettled(o, now)}, v.judges.classes(now)
	for i := range left {
		s := &left[i]
		if s.Protocol != conntrack.TCP || !untilOf(s, v.apart.untils, v.target.Ports).OfRequests() || !slices.Contains(flying, classOf(s.Client, of)) {
			continue
		}
		f.requests++
		if s.Quiet >= conntrack.ActiveFor {
			f.silent++
		}
	}
	return f
}

// unsettled says whether nothing but the quiet time, or the least delay, has kept a moment
// without a request from being the end.
func unsettled(o lifecycle.Observation, now time.Time) bool {
	if !o.Known || o.Blocking > 0 || o.Requests == 0 {
		return false
	}
	o.Deadline = now.Add(time.Hour) // as if there were time left
	d := lifecycle.Decide(o, now)
	return d.Phase == lifecycle.Draining && !d.WhenQuiet
}
